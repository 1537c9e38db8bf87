"""Names of a scenario's fields on their widgets, and in Chinese what the schema says of them in English.

What is said of an optimisation's switch stands at its pass.
"""

from app_pages.parts.texts import Table
from scenarios.passes import PASSES

#: Optimisations by name where they stand alone, by the switch below `optimizations`; {value} is the value meant.
SWITCHES: Table = {item.switch: item.name for item in PASSES}

#: (English label, Chinese label) of each field that has a widget.
LABELS: Table = {
    "scenario": ("Scenario", "场景"),
    "model": ("Model", "模型"),
    "hardware": ("Chip", "芯片"),
    "workload.phase": ("Reported step", "报告的步骤"),
    "workload.batch": ("Batch, requests", "批大小，请求数"),
    "workload.input_tokens": ("Input length, tokens", "输入长度，token"),
    "workload.output_tokens": ("Output length, tokens", "输出长度，token"),
    "workload.sampling": ("Sampling", "采样"),
    "optimizations.graph_prefill": ("Compile prefill too", "预填充也编译"),
    "engine.task_queue_enable": ("TASK_QUEUE_ENABLE", "TASK_QUEUE_ENABLE"),
    "protocol.synchronize": ("Synchronise after each", "同步粒度"),
    "optimizations.kv.scale": ("INT8 scale per", "INT8 缩放粒度"),
    "optimizations.kv.block_size": ("Block size, tokens", "块大小，token"),
    "optimizations.kv.prefix_sharing": ("Share common prefixes", "共享公共前缀"),
    "optimizations.kv.shared_prefix_tokens": ("Common prefix, tokens", "公共前缀，token"),
    "engine.tensor_parallel_size": ("Tensor parallel, ranks", "张量并行，卡数"),
    "engine.pipeline_parallel_size": ("Pipeline stages", "流水线级数"),
    "engine.data_parallel_size": ("Data parallel, replicas", "数据并行，副本数"),
    "engine.enable_expert_parallel": ("Expert parallel", "专家并行"),
    "engine.sequence_parallel": ("Sequence parallel", "序列并行"),
    "engine.hccl_op_expansion_mode": ("HCCL expansion", "HCCL 展开模式"),
    "engine.all2all_backend": ("Exchange of experts' tokens", "专家 token 交换方式"),
    "engine.max_num_seqs": ("Most requests in a step", "每步最多请求数"),
    "engine.max_num_batched_tokens": ("Most tokens in a step", "每步最多 token 数"),
    "engine.allow_long_max_model_len": ("Beyond the model's positions", "允许超过模型位置数"),
    **{f"optimizations.{item.switch}": item.label for item in PASSES},
}

#: What the schema says of each field, for readers of Chinese.
HELP_ZH: dict[str, str] = {
    "model": "随包提供的模型，Hugging Face config.json 形式。",
    "hardware": "随包提供的硬件参数文件，每个数字都注明来源。",
    "workload.phase": "报告拆解哪一步：稳定的解码步、一个预填充块，或两者混合的批。",
    "workload.batch": "同时运行的请求数（每个数据并行副本）。",
    "workload.input_tokens": "每个请求的提示词长度。",
    "workload.output_tokens": "每个请求生成的 token 数。",
    "workload.sampling": "如何选下一个 token：取最大，或排序后做 top-k/top-p 过滤与 softmax。",
    "optimizations.graph_prefill": "预填充步也按其确切形状编译（仅 ge_graph）。",
    "engine.task_queue_enable": "0：一个 Host 线程；1：第二个线程负责下发；2：它还负责 workspace。",
    "protocol.synchronize": "Host 在哪里等待设备：每步末、每层后，或每个算子后。",
    "optimizations.kv.scale": "一个 INT8 缩放系数覆盖的范围（dtype 为 int8 时有效）。",
    "optimizations.kv.block_size": "分页缓存中一个块的 token 数。",
    "optimizations.kv.prefix_sharing": "提示词前缀相同的请求共享其块（仅 paged）。",
    "optimizations.kv.shared_prefix_tokens": "所有请求共有的提示词 token 数（开启前缀共享时有效）。",
    "engine.tensor_parallel_size": "分担每一层的卡数。",
    "engine.pipeline_parallel_size": "分担模型深度的级数；有同样多的批在流水线中。",
    "engine.data_parallel_size": "分担请求的副本数。",
    "engine.enable_expert_parallel": "把完整的专家分散到各卡，而不是切分每个专家。",
    "engine.sequence_parallel": "用 reduce-scatter 与 all-gather 代替 all-reduce。",
    "engine.hccl_op_expansion_mode": "谁搬运集合通信的字节：向量核、AI CPU 或 Host 。",
    "engine.all2all_backend": "token 如何到达其他卡上的专家：发过去，或每卡看到全部 token 再归约。",
    "engine.max_num_seqs": "一步中最多的请求数。",
    "engine.max_num_batched_tokens": "一步中最多的 token 数；更长的预填充按此切块。",
    "engine.allow_long_max_model_len": (
        "请求可否长于模型训练时的位置数（VLLM_ALLOW_LONG_MAX_MODEL_LEN；生成的文本可能无用）。默认拒绝。"
    ),
    **{f"optimizations.{item.switch}": item.help[1] for item in PASSES},
}

#: Groups of widgets in the side bar.
GROUP_LABELS: Table = {
    "workload": ("Workload", "负载"),
    "issue": ("Host and graph", "Host 与图"),
    "fusion": ("Fusion", "算子融合"),
    "kv": ("KV cache", "KV 缓存"),
    "weights": ("Weights", "权重"),
    "parallel": ("Parallel", "并行"),
    "overlap": ("Overlap", "重叠"),
    "scheduler": ("Scheduler", "调度"),
}
