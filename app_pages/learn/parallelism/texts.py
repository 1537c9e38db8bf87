"""Texts of the lesson: DP, TP, PP, SP and EP side by side."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("DP, TP, PP, SP, EP side by side", "DP、TP、PP、SP、EP 对比"),
    "claim": (
        "Each splits something else: requests, layers' width, depth, the sequence, experts. None is better: latency, "
        "throughput, memory and communication pull in different directions.",
        "各自切分不同对象：请求、层内宽度、深度、序列、专家。没有绝对更好：时延、吞吐、显存与通信方向不同。",
    ),
    "model": ("Model", "模型"),
    "hardware": ("Chip", "芯片"),
    "cards": ("Cards", "卡数"),
    "requests": ("Requests in all", "总请求数"),
    "splits_DP": ("requests", "请求"),
    "splits_TP": ("width of each layer", "层内宽度"),
    "splits_TP+SP": ("width, and the sequence in between", "层内宽度，其间切序列"),
    "splits_PP": ("depth", "深度"),
    "splits_EP": ("experts", "专家"),
    "way": ("Way", "方式"),
    "splits": ("Splits", "切分对象"),
    "tpot": ("TPOT, ms", "TPOT，ms"),
    "ttft": ("TTFT, ms", "TTFT，ms"),
    "throughput": ("Tokens/s, all cards", "token/s（全部卡）"),
    "communication": ("In collectives, ms", "集合通信，ms"),
    "wait": ("Of it waiting, ms", "其中等待，ms"),
    "bubble": ("Bubble", "气泡"),
    "memory": ("Memory of a card", "每卡显存"),
    "card_weights": ("weights of a card", "单卡权重"),
    "weights": ("weights", "权重"),
    "kv": ("KV cache", "KV"),
    "other": ("other", "其他"),
    "tpot_alt": (
        "Bars with intervals: TPOT of {count} ways; {fastest} is the fastest.",
        "{count} 种方式的 TPOT 及区间；{fastest} 最快。",
    ),
    "throughput_alt": ("Bars: tokens/s of {count} ways; {most} gives most.", "{count} 种方式的 token/s；{most} 最高。"),
    "memory_chart": ("Memory of one card", "单卡显存"),
    "memory_alt": (
        "Bars: weights, KV cache and the rest on one card, against {usable} usable.",
        "单卡权重、KV 及其余，对照可用 {usable}。",
    ),
    "refused": ("Not possible here", "此处不可行"),
    "answer": (
        "{requests} requests on {cards} cards of {hardware}: {fastest} has the shortest TPOT ({tpot}), {most} the highest "
        "throughput ({throughput} tokens/s).",
        "{hardware} 的 {cards} 张卡、{requests} 个请求：{fastest} 的 TPOT 最短（{tpot}），{most} 吞吐最高（{throughput} token/s）。",
    ),
    "or": (" or ", " 或 "),
    "tie": (
        "Ways named together cannot be distinguished: the interval of their ratio holds 1.",
        "并列的方式无法区分：两者之比的区间包含 1。",
    ),
    "pictures": ("What each of them splits, on two cards", "各自切什么（两张卡）"),
    "pictures_note": (
        "Blue is card 0, orange card 1. A square is four layers deep and four columns of weights wide; for SP it is tokens, for EP experts.",
        "蓝色为 0 号卡，橙色为 1 号卡。方格为四层深、四列权重宽；SP 的方格为 token，EP 为专家。",
    ),
    "picture_DP": ("Each card holds everything, and serves other requests.", "每张卡都保存全部，服务不同的请求。"),
    "picture_TP": ("Each card holds a part of every layer.", "每张卡保存每一层的一部分。"),
    "picture_PP": (
        "Each card holds whole layers, and waits for the one before.",
        "每张卡保存完整的若干层，并等待前一级。",
    ),
    "picture_SP": ("Between the products each card works on its tokens.", "在矩阵乘之间，每张卡处理自己的 token。"),
    "picture_EP": ("Each card holds whole experts; tokens travel to them.", "每张卡保存完整的专家；token 被送过去。"),
    "guess": (
        "One replica does not fit one card. Which way does not help?",
        "一个副本单卡放不下。哪种方式没有帮助？",
    ),
    "guess_a": (
        "DP",
        "DP",
    ),
    "guess_b": (
        "TP",
        "TP",
    ),
    "guess_c": (
        "PP",
        "PP",
    ),
    "guess_right": ("a", "a"),
    "guess_why": (
        "Each replica of data parallelism holds all weights; only what splits the weights makes them smaller on a card.",
        "数据并行的每个副本都保存全部权重；只有切分权重的方式才能让单卡权重变小。",
    ),
    "measured": (
        "Decode of Qwen3-32B over TP16 on A3: 15.4 ms at 4 requests, 19.4 at 16 (Horacehxw/msModeling; fitted to); 23.1 ms on another day of the same set (not fitted to).",
        "A3 上 TP16 的 Qwen3-32B 解码：4 个请求 15.4 ms，16 个 19.4 ms（Horacehxw/msModeling；参与拟合）；同一组另一天 23.1 ms（未参与拟合）。",
    ),
    "limit": (
        "Pipeline stages are compared with no measured step, only their transfers; imbalance of experts is a setting, not a forecast.",
        "流水线各级没有与实测单步比较过，只比较了传输；专家不均衡是设置项，不是预报。",
    ),
    "question": ("Which way of using more cards fits my goal?", "用更多卡的哪种方式符合我的目标？"),
    "try": (
        "Take a model that does not fit one card: DP drops out, since each replica holds all weights.\n"
        "Take a model with experts and compare TP with EP.",
        "选一个单卡放不下的模型：DP 不可行，因为每个副本保存全部权重。\n选一个 MoE 模型，对比 TP 与 EP。",
    ),
}
