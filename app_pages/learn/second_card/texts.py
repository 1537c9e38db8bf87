"""Texts of the lesson: why the second card did not help."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Why the second card did not help", "为什么加一张卡没有用"),
    "claim": (
        "More devices do not mend what one card's host is late with: tensor parallelism shortens the device's part of a step, and the serving engine's host works as long as before.",
        "增加设备不会自动修复单卡的调度问题：张量并行缩短一步中设备的部分，推理引擎的 Host 仍与之前一样慢。",
    ),
    "formula_note": (
        "h: what the host does while the device works; v: what it does while the device waits, nothing where it schedules asynchronously.",
        "h：设备工作时 Host 所做；v：设备等待时 Host 所做，异步调度时为零。",
    ),
    "engine": ("Engine's host", "引擎 Host"),
    "requests": ("Requests at once", "并发请求数"),
    "device": ("device's step", "设备的一步"),
    "host": ("host's work for it", "Host 为它所做"),
    "step": ("from step to step", "步与步之间"),
    "cards": ("{n} card(s)", "{n} 张卡"),
    "parts": ("What a step is made of, by cards", "不同卡数下一步的构成"),
    "parts_alt": ("Bars for 1, 2 and 4 cards: from step to step {times}", "1、2、4 张卡：步与步之间 {times}"),
    "curve": ("From step to step, by requests", "步与步之间，随请求数变化"),
    "curve_alt": ("Lines of one and two cards over 1 to {most} requests", "一张与两张卡随 1 到 {most} 个请求变化"),
    "answer": (
        "{requests} requests: {one} from token to token on one card, {two} on two. The device's step was {device}, the host's work {host}: {verdict}.",
        "{requests} 个请求：一张卡每 token {one}，两张卡 {two}。设备的一步为 {device}，Host 所做 {host}：{verdict}。",
    ),
    "helps": ("the device was the longer, and the second card helps", "设备更久，第二张卡有用"),
    "little": (
        "the host is the longer, and the second card has hardly anything to shorten",
        "Host 更久，第二张卡几乎无可缩短",
    ),
    "guess": (
        "The device's decode step takes two thirds of the time from token to token, and the engine schedules asynchronously. What does a second card bring?",
        "设备的解码步只占 token 间隔的三分之二，引擎异步调度。加第二张卡会怎样？",
    ),
    "guess_a": ("about half the time", "约一半时间"),
    "guess_b": ("about a quarter less", "约少四分之一"),
    "guess_c": ("hardly anything", "几乎没有变化"),
    "guess_right": ("c", "c"),
    "guess_why": (
        "The rest is the engine's host, and with asynchronous scheduling the host alone sets the pace: halving the device's part changes nothing.",
        "其余时间属于引擎 Host；异步调度时由 Host 决定节奏：设备部分减半也没有变化。",
    ),
    "measured": (
        "Qwen3-14B on one 910B3 behind vLLM-Ascend 0.18: 44.5 ms a token at 1 request/s, 51.2 at 2, 69.0 at 4 (alauda/aml-docs, guidellm), where the device's step is predicted at 26 to 30 ms. Two cards of that host took the same: 37 ms and 0.49 for each request at once, as on one. The starved engine's host is fitted to these loads.",
        "vLLM-Ascend 0.18 下一张 910B3 的 Qwen3-14B：1 请求/s 时每 token 44.5 ms，2 时 51.2，4 时 69.0（alauda/aml-docs，guidellm），而预测的设备一步为 26 到 30 ms。同一 Host 上两张卡用时相同：与一张卡一样为 37 ms 加每个并发请求 0.49 ms。starved 引擎的 Host 开销按这些负载拟合。",
    ),
    "limit": (
        "What your engine's host takes lies somewhere between a healthy and a starved profile until a load test of yours fits it: whatif calibrate --bench.",
        "在用你的压测拟合之前（whatif calibrate --bench），只知道你的引擎 Host 开销在 healthy 与 starved 之间。",
    ),
    "question": (
        "My tokens come slowly: will another card help, or is the host the reason?",
        "出 token 很慢：加卡有用吗，还是 Host 的问题？",
    ),
    "try": (
        "Choose the healthy engine: now the device is the longer, and cards help.\n"
        "Raise the requests: the host's work grows with each of them.",
        "选择 healthy 引擎：此时设备更久，加卡有用。\n增加请求：Host 的工作随之增长。",
    ),
}
