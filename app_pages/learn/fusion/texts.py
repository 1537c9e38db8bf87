"""Texts of the lesson: fusion."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Fusing Add and RMSNorm", "Add 与 RMSNorm 融合"),
    "claim": (
        "Fusion saves launches and round trips to global memory. It does not save arithmetic: the formula stays the same.",
        "融合节省的是 kernel 启动与全局内存往返，而不是运算：公式没有变。",
    ),
    "formula_note": (
        "From Add + RmsNorm to AddRmsNorm: the sum is not read again. It is still written, as the next residual; were it not needed, that write would be saved too.",
        "从 Add + RmsNorm 到 AddRmsNorm：和不再被读回。它仍要写出，作为下一个残差；若不需要保留，这次写出也能省下。",
    ),
    "saved": ("saved bytes", "省下的字节"),
    "tokens": ("Tokens in the step", "本步 token 数"),
    "precision": ("Precision", "精度"),
    "form_primitives": ("primitive calls", "分别调用基础算子"),
    "form_add, rms_norm": ("Add + RmsNorm", "Add + RmsNorm"),
    "form_add_rms_norm": ("AddRmsNorm", "AddRmsNorm"),
    "kernels": ("Kernels", "kernel 数"),
    "moved": ("Bytes to and from global memory", "全局内存读写字节"),
    "device": ("Device time", "设备时间"),
    "host": ("Host time", "Host 时间"),
    "time_chart": ("Time of the three forms: host and device", "三种实现的时间：Host 与设备"),
    "time_alt": (
        "Bars: host and device time of the three forms; the longer of the two decides in eager mode.",
        "三种实现的 Host 与设备时间；eager 模式下取较长者。",
    ),
    "bytes_chart": ("Bytes that each kernel reads and writes", "每个 kernel 读写的字节"),
    "bytes_alt": (
        "Bars for each kernel of each form: bytes read and written; {first} in all for primitive calls, {last} fused.",
        "每种实现各 kernel 的读写字节：基础算子共 {first}，融合后 {last}。",
    ),
    "read": ("read", "读"),
    "write": ("write", "写"),
    "lanes_chart": (
        "Inside the kernels: one core's load, compute and store lanes",
        "kernel 内部：一个核的搬入、计算、搬出",
    ),
    "lanes_alt": (
        "Timeline of one core: lanes MTE2 (load), vector and MTE3 (store), tile by tile, for {form}.",
        "一个核的时间线：{form} 的 MTE2（搬入）、vector、MTE3（搬出），逐块。",
    ),
    "start": ("start of the kernel", "kernel 启动"),
    "lanes_note": (
        "Grey is the start of a kernel on its cores. Between two kernels everything goes out to global memory and in again; "
        "inside one, the sum is used where it is, on chip.",
        "灰色是 kernel 在各核上的启动。两个 kernel 之间，一切都要写回全局内存再读入；同一个 kernel 内，和就在片上使用。",
    ),
    "numerics": ("Computed for real: error against float64", "真实计算：相对 float64 的误差"),
    "numerics_note": (
        "{rows} random rows of {cols} values. Each form is rounded to {precision} where its kernels write to memory: the "
        "fewer the writes, the smaller the error. Forms differ by up to {apart} of the largest value, so compare outputs "
        "before you trust a fused call.",
        "{rows} 行、每行 {cols} 个随机数。每种实现在写回内存处舍入到 {precision}：写回越少，误差越小。"
        "各实现最多相差最大值的 {apart}，替换融合接口前请比较输出。",
    ),
    "error": ("Largest relative error", "最大相对误差"),
    "answer": (
        "{tokens} tokens: {kernels} kernels become 1 and {saved} fewer bytes move. Issued op by op this place is faster by "
        "{eager_ratio} ({host_or_device} decides there), in a graph by {graph_ratio}.",
        "{tokens} 个 token：{kernels} 个 kernel 变为 1 个，搬运字节少 {saved}；逐算子下发时这一处快 {eager_ratio}"
        "（由{host_or_device}决定），图模式下快 {graph_ratio}。",
    ),
    "the_host": ("the host", " Host "),
    "the_device": ("the device", "设备"),
    "guess": (
        "Add and RMSNorm become one kernel. What stays the same?",
        "Add 与 RMSNorm 合成一个 kernel。什么保持不变？",
    ),
    "guess_a": (
        "the number of launches",
        "启动次数",
    ),
    "guess_b": (
        "the arithmetic",
        "运算量",
    ),
    "guess_c": (
        "the bytes through global memory",
        "经过全局内存的字节",
    ),
    "guess_right": ("b", "b"),
    "guess_why": (
        "Fusion saves launches, and what goes out between kernels only to be read again; every add, square and division is still done.",
        "融合省下启动，以及 kernel 之间写出又读回的数据；每个加法、平方与除法仍要做。",
    ),
    "measured": (
        "Qwen3-8B on a 910B2 in a graph: 15.11 ms with RMSNorm in primitives, 14.41 ms fused; Add, packed projections and more: 12.64 ms (lukaIvanic/paddle_ocr_vl_npu; not fitted to). npu_rms_norm alone: 7 times as fast as its primitives (Swan's blog; not fitted to).",
        "910B2 图模式下 Qwen3-8B：RMSNorm 用基础算子 15.11 ms，融合后 14.41 ms；再融合 Add、合并投影等：12.64 ms（lukaIvanic/paddle_ocr_vl_npu；未参与拟合）。单看 npu_rms_norm：速度是基础实现的 7 倍（Swan 博客；未参与拟合）。",
    ),
    "limit": (
        "A kernel's time follows its published tiling and three fitted numbers a kind; bank conflicts and the code of one core are inside those numbers, not modelled.",
        "kernel 时间由公开的 tiling 与每类三个拟合数字决定；bank 冲突与单核代码包含在这些数字里，没有单独建模。",
    ),
    "question": ("Does fusing these two help here, and what exactly is saved?", "这里融合有用吗？省下的到底是什么？"),
    "try": (
        "Move the slider to 4,096 tokens: launches no longer matter, and what remains of the gain is the round trips.\n"
        "Switch to float32: the error of all three forms becomes alike.",
        "把滑块移到 4096：启动不再重要，剩下的收益来自往返。\n切换到 float32：三种实现的误差变得相近。",
    ),
}
