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
        "{ratio} faster. Capture and compilation take {cold}, paid back after {steps} steps.",
        "batch {batch}：Host 下发 {launches} 次需 {host}，kernel 需 {kernels}：图模式使单步快 {ratio}。"
        "捕获与编译耗时 {cold}，{steps} 步后收回。",
    ),
    "answer_none": (
        "Batch {batch}: the kernels take {kernels}, longer than the host's {host}: there is hardly anything left for a "
        "graph to save ({ratio}).",
        "batch {batch}：kernel 需 {kernels}，比 Host 的 {host} 更久：图模式几乎无可节省（{ratio}）。",
    ),
    "never": ("never", "永不"),
    "question": ("Is my device waiting for its host?", "我的设备是在等 Host 吗？"),
    "try": (
        "Raise the requests until the curves meet: the bottleneck has moved to the device.\n"
        "Let the host wait after each op: asynchronous issue is lost and the step grows, though nothing more is computed.",
        "增加请求直到曲线相遇：瓶颈已移到设备。\n让 Host 在每个算子后等待：异步下发消失，单步变长，尽管计算没有增加。",
    ),
}
