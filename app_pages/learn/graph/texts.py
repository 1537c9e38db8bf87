"""Texts of the lesson: eager and graph."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Eager and graph", "Eager 与图模式"),
    "claim": (
        "A graph changes how work is issued, not what is computed. It helps while the host is slower than the device, and "
        "its first run costs time.",
        "图模式改变的是下发方式，而不是计算内容。Host 比设备慢时才有收益，且首次运行要付出代价。",
    ),
    "batch": ("Requests", "请求数"),
    "context": ("Context, tokens", "上下文（token）"),
    "graph": ("Graph mode", "图模式"),
    "synchronize": ("Host waits", "Host 等待"),
    "step": ("per step", "每步"),
    "layer": ("after each layer", "每层之后"),
    "op": ("after each op", "每个算子之后"),
    "timeline_eager": ("Two layers, issued op by op", "两层，逐算子下发"),
    "timeline_graph": ("The same two layers, replayed", "同样两层，重放"),
    "timeline_alt": (
        "Timeline of two layers ({mode}): host calls above, kernels below; the device is idle for {idle} of the step.",
        "两层的时间线（{mode}）：上为 Host 调用，下为 kernel；设备空闲占单步 {idle}。",
    ),
    "curve": ("Step time by number of requests", "单步时间随请求数变化"),
    "curve_alt": (
        "Lines over 1 to {most} requests: eager {eager_first} to {eager_last}, graph {graph_first} to {graph_last}; they "
        "meet where kernels outlast the host.",
        "1 到 {most} 个请求：eager {eager_first} 到 {eager_last}，图模式 {graph_first} 到 {graph_last}；kernel 比 Host 更久时两线相遇。",
    ),
    "requests": ("Requests", "请求数"),
    "step_ms": ("Step, ms", "单步，ms"),
    "eager": ("eager", "eager"),
    "kernels_only": ("kernels alone", "仅 kernel"),
    "eager_step": ("Eager step", "Eager 单步"),
    "graph_step": ("Graph step", "图模式单步"),
    "gain": ("Gain", "收益"),
    "idle": ("Device idle, eager", "设备空闲（eager）"),
    "answer_gain": (
        "Batch {batch}: the host needs {host} for {launches} calls and the kernels {kernels}: the graph makes the step "
        "faster by {ratio}. Capture and compilation take {cold}, paid back after {steps} steps.",
        "batch {batch}：Host 下发 {launches} 次需 {host}，kernel 需 {kernels}：图模式使单步快 {ratio}。"
        "捕获与编译耗时 {cold}，{steps} 步后收回。",
    ),
    "answer_none": (
        "Batch {batch}: the kernels take {kernels}, longer than the host's {host}: there is hardly anything left for a "
        "graph to save ({ratio}).",
        "batch {batch}：kernel 需 {kernels}，比 Host 的 {host} 更久：图模式几乎无可节省（{ratio}）。",
    ),
    "never": ("never", "永不"),
    "guess": (
        "With 256 requests a step instead of one, what does a graph save?",
        "每步从 1 个请求变为 256 个，图模式还能省多少？",
    ),
    "guess_a": (
        "more: there is more to launch",
        "更多：要下发的更多",
    ),
    "guess_b": (
        "the same share",
        "同样的比例",
    ),
    "guess_c": (
        "less: the kernels outlast the host",
        "更少：kernel 比 Host 更久",
    ),
    "guess_right": ("c", "c"),
    "guess_why": (
        "The calls are as many as before, the kernels are longer: the host is hidden behind them, and little is left to save.",
        "调用次数不变，而 kernel 变长：Host 被掩盖，可省的所剩无几。",
    ),
    "measured": (
        "Qwen3-8B in Hugging Face style code with nothing fused, on a 910B2, eager and compiled: 62.9 and 14.5 ms for 1 request, 67.6 and 19.6 for 16, 65.7 and 41.1 for 256 (lukaIvanic/paddle_ocr_vl_npu; the host's costs are fitted to the eager steps, nothing to the compiled ones). At a cache of 128 tokens 66.3 and 15.2 ms (not fitted to).",
        "910B2 上 Hugging Face 风格、未融合的 Qwen3-8B，eager 与编译：1 个请求 62.9 与 14.5 ms，16 个 67.6 与 19.6，256 个 65.7 与 41.1（lukaIvanic/paddle_ocr_vl_npu；Host 开销按 eager 单步拟合，编译的各步未参与拟合）。缓存 128 token 时 66.3 与 15.2 ms（未参与拟合）。",
    ),
    "limit": (
        "Costs of capture and compilation for each node are assumed; only their order is known.",
        "每个节点的捕获与编译开销是假定值，只知其量级。",
    ),
    "question": ("Is my device waiting for its host?", "我的设备是在等 Host 吗？"),
    "try": (
        "Raise the requests until the curves meet: the bottleneck has moved to the device.\n"
        "Let the host wait after each op: asynchronous issue is lost and the step grows, though nothing more is computed.",
        "增加请求直到曲线相遇：瓶颈已移到设备。\n让 Host 在每个算子后等待：异步下发消失，单步变长，尽管计算没有增加。",
    ),
}
