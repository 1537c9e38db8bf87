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
        rf"vLLM-Ascend prefetches experts from {_N} tokens a step on, got {_N}",
        r"vLLM-Ascend 在每步至少 \1 个 token 时才预取专家权重，现为 \2",
    ),
    (
        rf"vLLM-Ascend prefetches in steps of fewer than {_N} tokens, got {_N}",
        r"vLLM-Ascend 仅在每步少于 \1 个 token 时预取权重，现为 \2",
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
    # Files as such: their text, their YAML or JSON, and what a load test holds.
    (r"character (U\+[0-9A-F]+) is not allowed", r"不允许字符 \1"),
    (
        r"byte-order mark \(U\+FEFF\) is not allowed; save the file as UTF-8 without BOM",
        "不允许字节顺序标记（U+FEFF）；请存为不带 BOM 的 UTF-8",
    ),
    (r"tag (.+) is not supported; write a plain value", r"不支持标签 \1；请直接写值"),
    (r"a second document \w+; one file holds one document", "这里开始了第二个文档；一个文件只放一个文档"),
    (r"duplicate key (.+), first given at line (\d+)", r"字段 \1 重复，第一次在第 \2 行"),
    (r"no such file (.+?)(?:\. Did you mean (.+)\?|\. Shipped scenarios: (.+))?", r"没有文件 \1"),
    (rf"must have at least {_N} characters, got (.+)", r"至少 \1 个字符，现为 \2"),
    (rf"must have at most {_N} characters, got (.+)", r"至多 \1 个字符，现为 \2"),
    (rf"must have at least {_N} (?:items?|entries), got (.+)", r"至少 \1 项，现为 \2"),
    (r"must be a whole number of (\w+), got (.+)", r"必须是整数（\1），现为 \2"),
    (r"must be a whole number from (\d+) to (\d+), got (.+)", r"必须是 \1 到 \2 的整数，现为 \3"),
    (r"must be a (?:whole number or a )?number, got (.+)", r"必须是数，现为 \1"),
    (r"must be a positive number, got (.+)", r"必须是正数，现为 \1"),
    (r"must be a mapping with keys such as (.+), got (.+)", r"应为含 \1 等字段的映射，现为 \2"),
    (r"unknown key '?(.+?)'?\. It belongs under '(.+)'", r"没有字段 \1；它应放在 \2 之下"),
    (r"unknown key '?(.+?)'?\. Did you mean (.+)\? It belongs under '(.+)'", r"没有字段 \1。是否指 \3 之下的 \2？"),
    (r"holds no kernels of a device(?:: profile with (.+) \(or of an NPU\))?", "没有设备 kernel：采集时请包含设备活动"),
    (r"'.*' at .*, behind event (\d+): ts .* is not a number", r"事件 \1 之后的事件没有时间"),
    (r"a number above 0 is due, got (.+)", r"应为大于 0 的数，现为 \1"),
    (r"a number of at least 1 is due, (?:got (.+)|and there is none)", "应为至少 1 的数"),
    (
        rf"(.+): (.+) (requests in flight|(?:in|out)put tokens a request|ms of T[TP][FO]T|requests/s): more than 0 and at "
        rf"most {_N} are due",
        r"\1：\2（\3）：应大于 0 且至多为 \4",
    ),
    (
        r"no engine fits these load tests: (\S+) would be (\S+); check their times and scenario",
        r"没有引擎能解释这些压测：\1 将为 \2；请检查其时间与场景",
    ),
    (r"none of its (\d+) load tests has a request that ended well", r"其中 \1 个压测没有一个成功的请求"),
    (r"holds no load test(?: with both TTFT and TPOT)?", "没有同时含 TTFT 与 TPOT 的压测"),
    (r"a number is due, got (.+)", r"应为数，现为 \1"),
    (
        r"all (\d+) load tests are past saturation, where requests wait for each other: test the deployment at a lower "
        r"rate, too",
        r"\1 个压测都已饱和，请求互相等待：请也在更低的到达率下测一次",
    ),
    (r"is a load test of (.+), and the scenario deploys (.+)", r"是 \1 的压测，而场景部署的是 \2"),
    (r"(.+?):? has no TTFT, no TPOT and no output tokens/s", r"\1：没有 TTFT、TPOT 与输出 tokens/s"),
    (r"(.+) is a load test, and (.+) \((.+)\) has no requests", r"\1 是压测，而 \2（\3）没有请求"),
    (
        r"(.+) is a load test, and (.+) \((.+)\) has no requests: compare it with another load test or a scenario with "
        r"workload\.traffic",
        r"\1 是压测，而 \2（\3）没有请求：请与另一个压测或带 workload.traffic 的场景比较",
    ),
    (
        r"one file is due, or the \.json and the \.csv of one name that AISBench writes",
        "应为一个文件，或 AISBench 写出的同名 .json 与 .csv",
    ),
    (r"is empty", "是空的"),
    (r"byte (0x\w+) behind line (\d+) is not UTF-8", r"第 \2 行之后的字节 \1 不是 UTF-8"),
    (r"byte (0x\w+) is not UTF-8", r"字节 \1 不是 UTF-8"),
    (r"is binary \(byte (\d+) is zero\), not (?:YAML )?text", r"是二进制文件（字节 \1 为零），不是文本"),
    (r"is UTF-16; save it as UTF-8", "是 UTF-16；请存为 UTF-8"),
    (r"(?:event (\d+): )?is not an object", "不是对象"),
    (r"(?:event (\d+): )?the file is cut off", "文件不完整"),
    (r"is cut off: the gzip stream does not end", "文件不完整：gzip 流没有结束"),
    (r"(?:event \d+: )?holds NaN or Infinity, which are no JSON numbers", "含有 NaN 或 Infinity，它们不是 JSON 数"),
    (r"is not JSON: it \w+ with neither \[ nor \{", "不是 JSON：开头既不是 [ 也不是 {"),
    (r"(?:event \d+: )?is not JSON: .+", "不是 JSON"),
    (r"not JSON(?:: .+)?", "不是 JSON"),
    (r"(?:an event behind event \d+ )?is nested too deeply", "嵌套过深"),
    (r"is not CSV: .+", "不是 CSV"),
    (r"is no SQLite database", "不是 SQLite 数据库"),
    (
        r"a result of vllm bench serve, guidellm, AIPerf or AISBench is due, and it holds no JSON object",
        "应为 vllm bench serve、guidellm、AIPerf 或 AISBench 的结果，而这里没有 JSON 对象",
    ),
    (r"(.+) is none of ns, us, ms, s, sec, seconds", r"\1 不是 ns、us、ms、s、sec、seconds 之一"),
    (
        r"AISBench writes (.+) to (.+) next to it; it has none",
        r"AISBench 把 \1 写在旁边的 \2 里；这里没有：请一起上传两个文件",
    ),
    (r"must be key=value, such as (\S+)", r"必须写成 key=value，例如 \1"),
)
#: Names with blanks: of a file, and of what AISBench counts.
_PLACE = re.compile(r".+\.(?:ya?ml|json|csv|db|gz)(?::\d+)*|[A-Z][\w ]+\.(?:total|stable)")
_KNOWN = tuple((re.compile(pattern), chinese) for pattern, chinese in PATTERNS)


def in_words(message: str, language: Language) -> str:
    """A refusal in the reader's language; the place before it (`file:line:column: field: `) stays as it is."""
    if language == "en":
        return message
    said = _known(message)
    if said is not None:
        return said
    head, colon, rest = message.partition(": ")
    if colon and (" " not in head.removeprefix("--set ") or _PLACE.fullmatch(head)):
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
