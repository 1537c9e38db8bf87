"""Texts of the lesson: fusion."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Fusing Add and RMSNorm", "Add 与 RMSNorm 融合"),
    "claim": (
        "Fusion saves launches and round trips to global memory. It does not save arithmetic: the formula stays the same.",
        "融合节省的是 kernel 启动与全局内存往返，而不是运算：公式没有变。",
    ),
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
        "inside one, the sum stays on chip.",
        "灰色是 kernel 在各核上的启动。两个 kernel 之间，一切都要写回全局内存再读入；同一个 kernel 内，和留在片上。",
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
        "{tokens} tokens: {kernels} kernels become 1, {bytes_ratio} fewer bytes move, and a norm takes {eager_ratio} less "
        "time issued op by op ({host_or_device} decides there), {graph_ratio} less in a graph.",
        "{tokens} 个 token：{kernels} 个 kernel 变为 1 个，搬运字节少 {bytes_ratio}；逐算子下发时这一处快 {eager_ratio}"
        "（由{host_or_device}决定），图模式下快 {graph_ratio}。",
    ),
    "the_host": ("the host", " Host "),
    "the_device": ("the device", "设备"),
    "question": ("Does fusing these two help here, and what exactly is saved?", "这里融合有用吗？省下的到底是什么？"),
    "try": (
        "Move the slider to 4,096 tokens: launches no longer matter, and what remains of the gain is the round trips.\n"
        "Switch to float32: the error of all three forms becomes alike.",
        "把滑块移到 4096：启动不再重要，剩下的收益来自往返。\n切换到 float32：三种实现的误差变得相近。",
    ),
}
