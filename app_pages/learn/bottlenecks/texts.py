"""Texts of the lesson: find the bottleneck first."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Find the bottleneck first", "先确定瓶颈"),
    "claim": (
        "One model meets five different walls: host, memory, compute, communication, capacity. An optimisation helps only "
        "where its wall is the one you stand at.",
        "同一个模型会撞上五种不同的墙：Host 下发、访存、算力、通信、容量。只有针对眼前这堵墙的优化才有用。",
    ),
    "chart": ("Where kernel time goes, by what limits the kernels", "各类瓶颈占用的 kernel 时间"),
    "chart_alt": (
        "Bars for {count} deployments of {model}: kernel time split by what limits it, and idle time of the device.",
        "{model} 的 {count} 种部署：kernel 时间按受限原因划分，并标出设备空闲。",
    ),
    "idle": ("device idle", "设备空闲"),
    "situation_eager, one request": ("eager, one request", "eager，1 个请求"),
    "situation_graph, one request": ("graph, one request", "图模式，1 个请求"),
    "situation_graph, 64 requests": ("graph, 64 requests", "图模式，64 个请求"),
    "situation_prefill of 4,096 tokens": ("prefill of 4,096 tokens", "4,096 token 的 prefill"),
    "situation_prefill on 8 cards": ("prefill on 8 cards", "8 卡 prefill"),
    "situation_4,096 requests": ("4,096 requests", "4,096 个请求"),
    "situation": ("Deployment", "部署"),
    "step": ("Step", "单步耗时"),
    "bottleneck": ("Bottleneck", "瓶颈"),
    "evidence": ("Evidence", "依据"),
    "remedy": ("What to try", "可以尝试"),
    "does_not_fit": ("does not fit", "放不下"),
    "remedy_host-bound": (
        "Graph mode, or fewer and larger kernels: both cut what the host must issue.",
        "图模式，或更少更大的 kernel：两者都减少 Host 需要下发的次数。",
    ),
    "remedy_HBM-bound": (
        "Read fewer bytes: quantised weights or cache; share one read among more requests.",
        "少搬一点：量化权重或 KV；让更多请求共用一次读取。",
    ),
    "remedy_cube-bound": (
        "Lower precision for the products, or more cards: launches and round trips no longer matter.",
        "降低矩阵乘精度，或增加卡数：此时下发与往返已不重要。",
    ),
    "remedy_vector-bound": (
        "Fuse small kernels: most of their time is the start of their cores.",
        "融合小 kernel：它们的时间大多花在各核启动上。",
    ),
    "remedy_communication-bound": (
        "Fewer or smaller collectives, or hide them behind products.",
        "减少或缩小集合通信，或用矩阵乘把它掩盖起来。",
    ),
    "remedy_capacity-bound": (
        "Page or quantise the cache, quantise weights, or split the model over cards.",
        "KV 分页或量化、权重量化，或把模型切到多卡。",
    ),
    "remedy_bubble-bound": (
        "More micro-batches in flight, or stages of equal length.",
        "更多微批次同时在途，或让各阶段等长。",
    ),
    "answer": (
        "{model} on {hardware}: {distinct} different bottlenecks in {count} deployments, and the step ranges from "
        "{fastest} to {slowest}.",
        "{model} 在 {hardware} 上：{count} 种部署出现 {distinct} 种不同瓶颈，单步从 {fastest} 到 {slowest}。",
    ),
    "guess": (
        "A model decodes one request op by op, and the device is idle for more than half of the step. Which change helps most?",
        "一个模型逐算子解码一个请求，单步中设备超过一半时间空闲。哪项改动最有用？",
    ),
    "guess_a": (
        "faster HBM",
        "更快的 HBM",
    ),
    "guess_b": (
        "a second card",
        "再加一张卡",
    ),
    "guess_c": (
        "a graph",
        "图模式",
    ),
    "guess_right": ("c", "c"),
    "guess_why": (
        "While it is idle the device waits for its host, and neither memory nor another card makes the host faster.",
        "空闲时设备在等 Host，内存与另一张卡都不会让 Host 更快。",
    ),
    "measured": (
        "Qwen3-8B in Hugging Face style code with nothing fused, on a 910B2, one request: 62.9 ms op by op, 14.5 ms as a compiled graph (public decode sweep, lukaIvanic/paddle_ocr_vl_npu). The host's costs are fitted to the first; nothing is fitted to the second.",
        "910B2 上 Hugging Face 风格、未融合的 Qwen3-8B，单请求：逐算子 62.9 ms，编译成图 14.5 ms（公开的解码扫描，lukaIvanic/paddle_ocr_vl_npu）。Host 开销按前者拟合，后者未参与拟合。",
    ),
    "limit": (
        "A name is given by the largest parts of the step of rank 0. Where none has half of the step or clearly leads its sort, or two are alike, the step is called mixed, and no single remedy stands out.",
        "名称取自 0 号卡单步中最大的部分；若没有一部分占到一半、也没有在同类中明显领先，或两部分相近，则称为混合，没有单一的对策。",
    ),
    "question": ("Which of the five walls does my deployment stand at?", "我的部署撞上了哪一堵墙？"),
    "try": (
        "Open the eager deployment in the lab and switch on graph mode: the bottleneck moves from the host to HBM.\n"
        "Then raise the batch: the bytes of the weights are shared, those of the cache are not.",
        "在实验台打开 eager 部署并切换到图模式：瓶颈从 Host 移到 HBM。\n再增大 batch：权重字节被共享，KV 字节不会。",
    ),
}
