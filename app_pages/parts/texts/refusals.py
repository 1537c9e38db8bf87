"""What is refused, for readers of Chinese: the sentences of checks, passes and memory as patterns with their translation.

`in_words` takes the longest part that a pattern knows; what none knows is shown as it is, and called the original. A test
tries every value of every widget on every shipped scenario and finds none that is left.
"""

from __future__ import annotations

import re

from app_pages.parts.texts import Language

#: How a sentence that no pattern knows is introduced.
ORIGINAL = "（原文）"

_N = r"([0-9][0-9,.]*)"
_W = r"(\S+?)"
_G = r"([0-9.,]+ [KMGT]?i?B)"

#: (pattern of the whole sentence or of a part between semicolons, Chinese with \1, \2, ...)
PATTERNS: tuple[tuple[str, str], ...] = (
    (
        rf"does not fit: {_G} needed \(weights {_N}, KV cache {_N}, activations {_N}, graph, buffers and runtime {_N}\) "
        rf"of {_G} usable on {_W}: {_G} too much",
        r"放不下：需要 \1（权重 \2，KV 缓存 \3，激活 \4，图、缓冲与运行时 \5），\7 上可用 \6，超出 \8",
    ),
    (rf"at most {_N} requests of this length fit", r"这样长度的请求最多放得下 \1 个"),
    (
        r"not even one request fits beside the weights: fewer or shorter ones, or less max_num_batched_tokens",
        "除权重外连一个请求也放不下：减少或缩短请求，或减小 max_num_batched_tokens",
    ),
    (r"not even one request fits: shrink the weights", "连一个请求也放不下：请减小权重"),
    (rf"has no effect here: {_W} has no experts", r"在此无效：\1 没有专家"),
    (rf"has no effect here: {_W} has no shared expert", r"在此无效：\1 没有共享专家"),
    (
        rf"has no effect here: {_W} attends to latent rows: only the fused kernel of that is modelled",
        r"在此无效：\1 的注意力作用于潜变量行，只有其融合 kernel 有模型",
    ),
    (r"has no effect here: a rank alone has no collectives to hide", "在此无效：单卡没有可隐藏的集合通信"),
    (
        r"has no effect here: no tokens are sent without engine\.enable_expert_parallel over several ranks",
        "在此无效：没有跨多卡的 engine.enable_expert_parallel 就不发送 token",
    ),
    (r"has no effect: a card alone has no collectives", "无效：单卡没有集合通信"),
    (rf"has no effect: {_W} has no experts", r"无效：\1 没有专家"),
    (
        rf"has no effect with dtype {_W}, only with int8\. Remove it, or set it to null where a base file gives it",
        r"dtype 为 \1 时无效，仅 int8 时有效。请去掉它；若由基础文件给出，设为 null",
    ),
    (
        rf"has no effect with layout {_W}\. Remove it, or set it to null where a base file gives it",
        r"layout 为 \1 时无效。请去掉它；若由基础文件给出，设为 null",
    ),
    (
        rf"has no effect with optimizations\.graph {_W}: only ge_graph compiles prefills",
        r"optimizations.graph 为 \1 时无效：只有 ge_graph 编译预填充",
    ),
    (
        rf"has no effect with optimizations\.graph {_W}: only aclgraph and npugraph_ex capture sizes",
        r"optimizations.graph 为 \1 时无效：只有 aclgraph 与 npugraph_ex 捕获尺寸",
    ),
    (
        rf"has no effect with optimizations\.graph {_W}, only with aclgraph",
        r"optimizations.graph 为 \1 时无效，仅 aclgraph 时有效",
    ),
    (rf"has no effect with {_W} {_W}", r"\1 为 \2 时无效"),
    (r"has no effect without shared_prefix_tokens above 0", "shared_prefix_tokens 不大于 0 时无效"),
    (rf"has no effect without {_W}: true", r"\1 未开启时无效"),
    (rf"has no effect without {_W}", r"没有 \1 时无效"),
    (
        rf"must be at least {_N}, the {_N} input_tokens and {_N} output_tokens of a request, got {_N}",
        r"至少为 \1（一个请求的 \2 个 input_tokens 加 \3 个 output_tokens），现为 \4",
    ),
    (
        rf"must be at least {_N}, one token for each request of a {_W} step, got {_N}",
        r"至少为 \1（\2 步的每个请求一个 token），现为 \3",
    ),
    (rf"must be at most {_W}, {_N}, got {_N}", r"至多为 \1（\2），现为 \3"),
    (rf"must be at least {_N}, got (.+)", r"至少为 \1，现为 \2"),
    (rf"must be at most {_N}, got (.+)", r"至多为 \1，现为 \2"),
    (rf"must be greater than {_N}, got (.+)", r"必须大于 \1，现为 \2"),
    (r"must be one of (.+), got (.+?)(?:\. Did you mean (.+)\?)?", r"必须是以下之一：\1；现为 \2"),
    (r"must be a whole number, got (.+)", r"必须是整数，现为 \1"),
    (r"must be true or false, got (.+)", r"必须是 true 或 false，现为 \1"),
    (rf"workload\.batch {_N} is more than engine\.max_num_seqs {_N}", r"workload.batch \1 大于 engine.max_num_seqs \2"),
    (
        rf"a mixed step needs workload\.batch of at least {_N}, for a prefill and a decode, got {_N}",
        r"混合步的 workload.batch 至少为 \1（一个预填充加一个解码），现为 \2",
    ),
    (
        rf"{_N} tokens are more than the {_N} positions of {_W} \((engine\.allow_long_max_model_len)\)",
        r"\1 个 token 超过 \3 的 \2 个位置（\4）",
    ),
    (
        rf"longer than the {_N} positions of {_W} \((engine\.allow_long_max_model_len)\)",
        r"超过 \2 的 \1 个位置（\3）",
    ),
    (
        rf"the prefill of {_N} prompt tokens in steps of max_num_batched_tokens {_N} takes {_N} steps, more than {_N}: "
        rf"at least {_N} tokens a step are needed",
        r"\1 个提示 token 按每步 max_num_batched_tokens \2 需要 \3 步，多于 \4 步：每步至少要 \5 个 token",
    ),
    (rf"{_W} has no experts to spread over ranks", r"\1 没有可分散到各卡的专家"),
    (rf"{_W} has no Q and K norm to fuse", r"\1 没有可融合的 Q、K 归一化"),
    (
        rf"{_W}: {_N} experts do not divide by the {_N} ranks that share them",
        r"\1：\2 个专家不能被分担它们的 \3 张卡整除",
    ),
    (rf"{_W}: {_N} attention heads do not divide by {_N}", r"\1：\2 个注意力头不能被 \3 整除"),
    (rf"{_W}: {_N} (.+?) do not divide by {_N}", r"\1：\2（\3）不能被 \4 整除"),
    (rf"{_W}: {_N} layers cannot fill {_N} stages", r"\1：\2 层填不满 \3 级流水线"),
    (rf"{_W} keeps latent rows, and those are not modelled in INT8", r"\1 保存潜变量行，其 INT8 形式没有模型"),
    (
        rf"{_N} micro-batches need workload\.batch of at least {_N}, got {_N}",
        r"\1 个微批需要 workload.batch 至少为 \2，现为 \3",
    ),
    (rf"the reported step has {_N} tokens, too few for {_N} pieces", r"该步只有 \1 个 token，不够分成 \2 片"),
    (
        r"finds nothing to cut: fusion\.matmul_all_reduce has the collectives inside its kernels",
        "没有可切分的对象：fusion.matmul_all_reduce 的集合通信在 kernel 之内",
    ),
    (
        r"pipeline stages pass micro-batches of their own: not modelled together",
        "流水线各级有自己的微批：两者同时使用没有模型",
    ),
    (
        rf"{_W} with {_W} activations: the fused kernels take one type; use auto",
        r"\1 与 \2 激活并用：融合 kernel 只接受一种类型，请用 auto",
    ),
    (
        r"needs engine\.sequence_parallel false, which has a reduce-scatter where the kernel has an all-reduce",
        "需要 engine.sequence_parallel 为 false：它在该 kernel 的 all-reduce 处使用 reduce-scatter",
    ),
    (r"needs engine\.tensor_parallel_size above 1", "需要 engine.tensor_parallel_size 大于 1"),
    (rf"needs layout {_W}, got {_W}", r"需要 layout \1，现为 \2"),
    (r"needs ((?:[\w.]+ [\w.]+)(?:, [\w.]+ [\w.]+)*)", r"需要 \1"),
    (
        r"npu_mm_all_reduce_base multiplies no INT4 weights with INT8 activations",
        "npu_mm_all_reduce_base 不支持 INT4 权重乘 INT8 激活",
    ),
    (
        rf"npu_mm_all_reduce_base needs ranks that HCCS joins; on {_W} {_N} of them are joined by RoCE",
        r"npu_mm_all_reduce_base 需要由 HCCS 相连的卡；在 \1 上 \2 张卡由 RoCE 相连",
    ),
    (
        r"cannot be combined with overlap\.prefetch: when npu_ffn reads prefetched weights is not modelled",
        "不能与 overlap.prefetch 同用：npu_ffn 何时读取预取的权重没有模型",
    ),
    (
        r"an all-to-all needs to know on the host how much each rank sends, which a captured graph cannot wait for",
        "all-to-all 需要 Host 知道每张卡发送多少，而捕获的图无法等待",
    ),
    (r"torch has no such kernel for a GPU", "torch 没有这样的 GPU kernel"),
    (r"torch brings no weight into a GPU's L2 ahead", "torch 不会提前把权重取入 GPU 的 L2"),
    (r"FRACTAL_NZ is a layout of Ascend's cube cores, a GPU has none", "FRACTAL_NZ 是昇腾 cube 核的布局，GPU 没有"),
    (
        r"a compiler of torch_npu; on a GPU aclgraph means CUDA graphs, and ge_graph torch\.compile before them",
        "torch_npu 的编译器；在 GPU 上 aclgraph 指 CUDA graphs，ge_graph 指其前再加 torch.compile",
    ),
    (r"a launch thread of torch_npu, a GPU has none", "torch_npu 的下发线程，GPU 没有"),
    (r"NCCL has no such choice", "NCCL 没有这一选项"),
    (rf"set it to {_W}", r"请设为 \1"),
    (r"must not be empty", "不能为空"),
    # Files that are dropped or uploaded.
    (r"not valid YAML: (.+)", r"不是有效的 YAML：\1"),
    (r"no text in UTF-8", "不是 UTF-8 文本"),
    (r"byte (0x[0-9a-f]+) is not UTF-8", r"字节 \1 不是 UTF-8"),
    (r"is empty: it must be a mapping of keys to values", "是空的：应为键到值的映射"),
    (r"the top level is (?:a list|text|.+): it must be a mapping of keys to values", "顶层应为键到值的映射"),
    (r"(\S+) does not fit 64 bits; put it in quotes if it is text", r"\1 超出 64 位；若是文本请加引号"),
    (r"not JSON: nested too deep", "不是 JSON：嵌套过深"),
    (r"not JSON: not UTF-8 text", "不是 JSON：不是 UTF-8 文本"),
    (r"not JSON(?:: (.+))?", "不是 JSON"),
    (r"not a Hugging Face config\.json(?: \(.+\))?", "不是 Hugging Face 的 config.json"),
    (
        r"(model_type .+|.+) is not modelled\. The nearest shipped model that runs is (\S+); `whatif list models` shows the "
        r"families",
        r"\1 没有模型。随包最接近的可运行模型是 \2；`whatif list models` 列出各系列",
    ),
    (r"must be text, got (.+)", r"必须是文本，现为 \1"),
    (r"(.+) is not a finite number", r"\1 不是有限的数"),
    (r"control characters are not allowed", "不允许控制字符"),
    (r"(.+) lies outside (.+), the folder of the first file", r"\1 在第一个文件的文件夹之外"),
    (r"'?(.+?)'? does not ship, and was not dropped with it", r"没有随包提供 \1，也没有一起拖入"),
    (r"'?(.+?)'? is no profile and no file\. Known: (.+)", r"没有参数文件 \1。已知：\2"),
    (r"'?(.+?)'? is no profile and no file\. Did you mean (.+)\?", r"没有参数文件 \1。是否指 \2？"),
    (
        r"neither a scenario, a hardware or engine profile \(YAML\) nor a model's config\.json \(JSON\)",
        "既不是场景、硬件或引擎参数（YAML），也不是模型的 config.json（JSON）",
    ),
    (
        r"a result of whatif run --json; the pages Measure and Compare open it",
        "是 whatif run --json 的结果；请在“测量”或“对比”页打开",
    ),
    (r"no config\.json, and no YAML file of a scenario or a profile", "没有 config.json，也没有场景或参数的 YAML 文件"),
    (rf"larger than {_N} bytes", r"大于 \1 字节"),
    (rf"this lab keeps {_N} files already; start it again", r"实验台已保存 \1 个文件；请重新启动"),
    (r"this lab keeps no such file; drop it again", "实验台没有这个文件；请重新拖入"),
    (r"no result of whatif run --json|not a result of `whatif run --json`", "不是 `whatif run --json` 的结果"),
    (
        r"a result without a measured part; write it with --backend cpu, cuda or npu",
        "结果中没有实测部分；请用 --backend cpu、cuda 或 npu 写出",
    ),
    (r"not what whatif run --backend writes there", "与 whatif run --backend 写出的内容不符"),
    (
        r"a result of vllm bench serve, guidellm, AIPerf or AISBench is due; (?:its keys are|a CSV is AIPerf's:) (.+)",
        r"应为 vllm bench serve、guidellm、AIPerf 或 AISBench 的结果；现有：\1",
    ),
    (r"a number above 0 is due, and there is none", "应为大于 0 的数，而这里没有"),
    (r"holds no events", "没有事件"),
    (
        r"is no profile: neither a trace \(JSON\), nor a table \(CSV\), nor a database \(SQLite\)",
        "不是性能数据：既不是 trace（JSON）、表（CSV），也不是数据库（SQLite）",
    ),
    (r"holds no profile: there is no (.+) in it", r"没有性能数据：其中没有 \1"),
    (r"has no column '(.+?)'; found: (.+)", r"没有列 \1；现有：\2"),
    (r"is no readable SQLite database: (.+)", r"不是可读的 SQLite 数据库：\1"),
    (r"is not gzip: (.+)", r"不是 gzip：\1"),
    (r"'.*' at no time, behind event (\d+): ts '.*' is not a number", r"事件 \1 之后的事件没有时间"),
    (rf"not done after {_N} s", r"\1 秒后仍未完成"),
    (r"ended without a result", "没有结果"),
    (
        rf"more than {_N} MB: give the folder to whatif import, or start whatif app --profiles",
        r"大于 \1 MB：请用 whatif import，或 whatif app --profiles",
    ),
    (r"there are two files of that name; upload one rank's folder", "有两个同名文件；请上传一个 rank 的文件夹"),
    (r"a folder of at least one file and at most (\d+) MB is due", r"应为至少一个文件、至多 \1 MB 的文件夹"),
    (r"'?(.+?)'? does not ship(?:\. Did you mean (.+)\?)?", r"没有随包提供 \1"),
    (r"unknown key(?:\. Did you mean (.+)\?)?", "没有这个字段"),
    (r"unknown key '?(.+?)'?\. Did you mean (.+)\?", r"没有字段 \1。是否指 \2？"),
    (r"unknown key '?(.+?)'?\. Known keys: (.+)", r"没有字段 \1。已知字段：\2"),
    (r"must be key=value, such as (\S+)", r"必须写成 key=value，例如 \1"),
)
_KNOWN = tuple((re.compile(pattern), chinese) for pattern, chinese in PATTERNS)


def in_words(message: str, language: Language) -> str:
    """A refusal in the reader's language; the place before it (`file:line:column: field: `) stays as it is."""
    if language == "en":
        return message
    said = _known(message)
    if said is not None:
        return said
    head, colon, rest = message.partition(": ")
    if colon and " " not in head.removeprefix("--set "):
        return f"{head}: {in_words(rest, language)}"
    parts = [_known(part) for part in message.split("; ")]
    if None not in parts:
        return "；".join(part for part in parts if part is not None)
    return f"{ORIGINAL}{message}"


def _known(message: str) -> str | None:
    for pattern, chinese in _KNOWN:
        if match := pattern.fullmatch(message):
            return match.expand(chinese)
    return None
