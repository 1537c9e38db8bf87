"""Texts of the lesson: tensor parallel splits."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Columns concatenate, rows sum", "列切分拼接，行切分求和"),
    "claim": (
        "Split a weight by output columns and the parts of the result stand side by side. Split it by the dimension that is "
        "summed over and every rank has a partial sum of everything: only adding them gives the result.",
        "按输出列切权重，各卡结果并排拼接；按归约维切，每卡得到的是整个结果的部分和，只有相加才正确。",
    ),
    "split": ("Split", "切分"),
    "columns": ("by columns of W", "按 W 的列"),
    "rows": ("by rows of W", "按 W 的行"),
    "ranks": ("Ranks", "卡数"),
    "precision": ("Precision", "精度"),
    "k": ("K, summed over", "归约维 K"),
    "picture": (
        "The same product on {ranks} ranks, small enough to check by hand",
        "{ranks} 张卡上的同一个乘积，小到可以手算",
    ),
    "picture_alt": (
        "Matrices X, W and the parts of Y; colours say which rank holds them. {how}",
        "矩阵 X、W 与 Y 的各部分；颜色表示所在的卡。{how}",
    ),
    "how_columns": ("Y is the parts side by side.", "Y 是各部分的拼接。"),
    "how_rows": ("Y is the sum of the parts.", "Y 是各部分之和。"),
    "rank": ("rank {rank}", "卡 {rank}"),
    "joined": ("joined", "合并后"),
    "whole": ("all ranks", "全部"),
    "part": ("Y of rank {rank}", "卡 {rank} 的 Y"),
    "collective": ("Collective", "集合通信"),
    "all_gather": ("all-gather, or none if the next layer takes slices", "all-gather；若下一层直接消费分片则不需要"),
    "all_reduce": ("all-reduce", "all-reduce"),
    "rounding_chart": (
        "At real size: error against float64, by number of ranks",
        "真实规模：相对 float64 的误差随卡数变化",
    ),
    "rounding_alt": (
        "Points for 1 to {most} ranks: a column-parallel keeps {columns} whatever the ranks, a row-parallel {rows} at {most}.",
        "1 到 {most} 张卡：列切分始终 {columns}，行切分在 {most} 卡时为 {rows}。",
    ),
    "error": ("Largest relative error", "最大相对误差"),
    "equal": ("Values equal bit for bit", "逐位相等的数值"),
    "answer": (
        "{rows} x {k} times {k} x {n} in {precision} on {ranks} ranks: split by columns {columns_equal} of the values equal "
        "the unsplit product bit for bit; split by rows {rows_equal}, since the sum is rounded in another order.",
        "{precision} 下 {rows}×{k} 乘 {k}×{n}，{ranks} 张卡：按列切分有 {columns_equal} 与不切分逐位相等；按行切分为 {rows_equal}，"
        "因为求和的舍入次序变了。",
    ),
    "guess": (
        "X is split by columns and W by rows over two cards. How do their results become Y?",
        "X 按列、W 按行切到两张卡。两个结果如何变成 Y？",
    ),
    "guess_a": (
        "laid side by side",
        "左右拼接",
    ),
    "guess_b": (
        "added",
        "相加",
    ),
    "guess_c": (
        "either, they are equal",
        "都行，两者相等",
    ),
    "guess_right": ("b", "b"),
    "guess_why": (
        "Each card has a partial sum of every element of Y. Concatenation would give a matrix of twice the width, and none of its values right.",
        "每张卡得到 Y 每个元素的部分和。拼接会得到两倍宽、没有一个值正确的矩阵。",
    ),
    "measured": (
        "All-reduce in a decode step of Qwen3-32B on 16 A3 dies: 20 µs in the median, 80 in the mean, since the mean holds the waiting for stragglers (Horacehxw/msModeling, vLLM-Ascend 0.15; the skew of ranks here is assumed from it).",
        "16 个 A3 die 上 Qwen3-32B 解码步的 all-reduce：中位数 20 µs，平均 80 µs，平均值含等待迟到的卡（Horacehxw/msModeling，vLLM-Ascend 0.15；此处各卡的先后差即据此假定）。",
    ),
    "limit": (
        "The rounding here is real arithmetic in numpy in one order of summation; HCCL's own order depends on its algorithm.",
        "这里的舍入是 numpy 按一种求和次序的真实计算；HCCL 的次序取决于其算法。",
    ),
    "question": (
        "After which split must I communicate, and may the output change?",
        "哪种切分之后必须通信？输出会变吗？",
    ),
    "try": (
        "Take the row-parallel and read the parts: each is as wide as the result and none of them is it.\n"
        "In an MLP, columns feed rows: one all-reduce per MLP is enough. Attention needs its own: two a layer.",
        "选择按行切分并观察各部分：每个都与结果同宽，却都不是结果。\nMLP 中列切分接行切分：每个 MLP 一次 all-reduce 就够；Attention 还需自己的一次，每层共两次。",
    ),
}
