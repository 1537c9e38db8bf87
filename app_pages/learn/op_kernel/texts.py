"""Texts of the lesson: op is not kernel."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("An op is not a kernel", "算子不等于 kernel"),
    "claim": (
        "An op is what the model says, a kernel what the device runs. One op can start many kernels, many ops can share one, and the deepest fusion is not always the fastest.",
        "算子描述逻辑运算，kernel 是设备上的具体实现。一个算子可启动多个 kernel，多个算子可共用一个；融合最深的不一定最快。",
    ),
    "tokens": ("Tokens in the step", "本步 token 数"),
    "chart": ("The feed-forward block of one layer in three forms", "一层前馈网络的三种形式"),
    "chart_alt": ("Bars of device time: {times}", "设备时间：{times}"),
    "device": ("device time", "设备时间"),
    "form": ("form", "形式"),
    "form_separate": ("separate calls", "分别调用"),
    "form_packed": ("packed and SwiGLU fused", "合并投影并融合 SwiGLU"),
    "form_one": ("all in npu_ffn", "全部在 npu_ffn 中"),
    "kernels": ("Kernels in their order", "依次启动的 kernel"),
    "kernels_note": (
        "As a profiler lists them; the formula is the same in all three.",
        "与 profiler 所列一致；三者公式相同。",
    ),
    "interface": ("Replacing by name is not enough", "不能只按函数名替换"),
    "interface_note": (
        "A fused call has an order of arguments and several outputs; check both, and types and layouts.",
        "融合接口有参数顺序与多个输出；两者都要检查，还有类型与布局。",
    ),
    "about_x1": ("the block's output", "本块的输出"),
    "about_x2": ("the residual; of the same shape and type", "残差；形状与类型相同"),
    "about_gamma": ("the weight of the norm, as long as a row", "归一化的权重，与一行同长"),
    "about_epsilon": ("the small number under the root", "根号下的小数"),
    "about_y": ("the normalised result", "归一化的结果"),
    "about_rstd": ("one over the root mean square of each row, float32", "每行均方根的倒数，float32"),
    "about_sum": ("the sum, which is the next residual", "两者之和，即下一个残差"),
    "error": ("largest relative error", "最大相对误差"),
    "mistakes": ("Computed: what a wrong call gives", "真实计算：调用错误的结果"),
    "mistakes_alt": ("Errors of the right call and of two wrong ones: {errors}", "正确与两种错误调用的误差：{errors}"),
    "mistake_right": ("as documented", "按文档"),
    "mistake_exchanged": ("gamma and residual exchanged", "gamma 与残差互换"),
    "mistake_third": ("third output taken for the first", "把第三个输出当作第一个"),
    "answer": (
        "The same formula is {count} kernels, {packed} kernels or one. The one takes {deeper} the time of the {packed}: {verdict}.",
        "同一公式可以是 {count} 个、{packed} 个或一个 kernel。一个的用时是 {packed} 个的 {deeper}：{verdict}。",
    ),
    "tie": ("the model cannot say which is faster", "模型无法判断哪个更快"),
    "slower": ("deeper is slower here", "此处融合更深反而更慢"),
    "faster": ("deeper is faster here", "此处融合更深更快"),
    "guess": (
        "npu_ffn does the whole feed-forward block in one kernel. At 10 x 208 tokens of a small model it was measured against three kernels. Which was faster?",
        "npu_ffn 用一个 kernel 完成整个前馈网络。小模型 10 x 208 个 token 时与三个 kernel 对比实测，哪个更快？",
    ),
    "guess_a": ("npu_ffn, by far", "npu_ffn 快很多"),
    "guess_b": ("the three kernels", "三个 kernel"),
    "guess_c": ("no difference", "没有差别"),
    "guess_right": ("b", "b"),
    "guess_why": (
        "The one kernel must hold two products and what lies between them in the buffers of a core, cuts smaller tiles and synchronises its cores.",
        "一个 kernel 要在核的缓冲里容纳两个矩阵乘及其中间结果，分块更小，还要在核间同步。",
    ),
    "measured": (
        "The feed-forward blocks of Qwen2.5-0.5B on an A3 die, 10 x 208 tokens, FP16: 7.754 ms as gate and up, SiLU and down, 9.276 ms as FFN, a loss of 20 % (fengz72/qwen2.5-varlen-npu; not fitted to).",
        "A3 die 上 Qwen2.5-0.5B 的前馈网络，10 x 208 token，FP16：gate 与 up、SiLU、down 共 7.754 ms，FFN 9.276 ms，损失 20 %（fengz72/qwen2.5-varlen-npu；未参与拟合）。",
    ),
    "limit": (
        "npu_ffn is priced from its published tiling; how its cores wait for each other is an assumption, and decides by how much it loses.",
        "npu_ffn 按公开的 tiling 定价；其核间如何等待是假定，并决定它损失多少。",
    ),
    "question": (
        "How many kernels does this op start, and is fusing more of it always better?",
        "这个算子启动几个 kernel？融合得越多就越好吗？",
    ),
    "try": (
        "Move the tokens: few of them make starts of kernels count, many make tiles count.\n"
        "Look the same block up in a profile: page Profile lists kernels, not ops.",
        "移动 token 数：少时看启动，多时看分块。\n在性能数据中找同一块：“性能数据”页列的是 kernel，不是算子。",
    ),
}
