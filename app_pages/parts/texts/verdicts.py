"""Why a step takes as long as it does: `sim.predict.explain` says it in English, here it is said of the same numbers in Chinese.

Braces are filled by `parts.verdict`.
"""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "host-bound": ("Host-bound.", "Host 受限。"),
    "HBM-bound": ("HBM-bound.", "HBM 带宽受限。"),
    "cube-bound": ("Cube-bound.", "Cube 算力受限。"),
    "vector-bound": ("Vector-bound.", "向量核受限。"),
    "communication-bound": ("Communication-bound.", "通信受限。"),
    "bubble-bound": ("Bubble-bound.", "流水线气泡受限。"),
    "capacity-bound": ("Capacity-bound.", "容量受限。"),
    "idle-bound": ("Idle-bound.", "设备空闲受限。"),
    "mixed": ("Mixed.", "混合。"),
}

#: The parts of a step.
PARTS: Table = {
    "computing: HBM": ("computing: HBM", "计算：HBM"),
    "computing: cube": ("computing: cube", "计算：cube"),
    "computing: vector": ("computing: vector", "计算：向量核"),
    "communication: transfer": ("communication: transfer", "通信：传输"),
    "waiting for ranks": ("waiting for ranks", "等待其他卡"),
    "pipeline bubble": ("pipeline bubble", "流水线气泡"),
    "host late": ("host late", "Host 下发晚"),
    "queued": ("queued", "已下发待执行"),
    "copies": ("copies", "拷贝"),
    "idle, cause unknown": ("idle, cause unknown", "空闲，原因未知"),
}

EVIDENCE_ZH = {
    "host-bound": "设备在一步中空闲 {free_share}（{total_ms} ms 中的 {free_ms} ms）：Host 发起 {launches} 次调用需要 "
    "{host_ms} ms，kernel 只需 {computing_ms} ms。",
    "HBM-bound": "{share} 的 kernel 时间受 HBM 限制：{computing_ms} ms 内搬运 {hbm_gb} GB，用到可持续带宽的 {hbm_busy}；"
    "设备在一步中空闲 {free_share}。",
    "cube-bound": "{share} 的 kernel 时间受 cube 限制：{top} 达到 {top_tflops} TFLOPS；设备在一步中空闲 {free_share}。",
    "vector-bound": "{share} 的 kernel 时间受向量核限制：共 {small} 次调用，平均 {small_us} µs；设备在一步中空闲 {free_share}。",
    "communication-bound": "一步的 {comm_share}（{total_ms} ms 中的 {comm_ms} ms）是没有被隐藏的集合通信，其中等待其他卡 "
    "{wait_ms} ms。",
    "bubble-bound": "流水线共 {stages} 级、{micro_batches} 个微批，各级平均 {bubble_share} 的时间是气泡。",
    "capacity-bound": "显存容量限制了并发。",
    "idle-bound": "设备在一步中空闲 {free_share}（{total_ms} ms 中的 {free_ms} ms），其中大部分不是因为 Host 下发晚；kernel 只需 "
    "{computing_ms} ms。",
    "mixed": "没有占主导的部分：设备空闲 {free_share}，未被隐藏的通信占 {comm_share}，kernel {computing_ms} ms。",
}

#: Words of an NPU in the above, and what a GPU has in their place.
GPU_ZH = (("Cube 算力", "Tensor Core 算力"), ("向量核", "CUDA core"), ("cube", "Tensor Core"))
