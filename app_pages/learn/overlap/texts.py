"""Texts of the lesson: overlap of computing and communication."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Overlap, and what spoils it", "重叠，以及什么会破坏它"),
    "claim": (
        "Run side by side, two things take from a + b towards max(a, b). Two streams are not a promise: shared cores and "
        "bandwidth, start-up of pieces, dependencies and waiting hosts all take their part back.",
        "并行执行使耗时从 a+b 趋向 max(a,b)。两条 stream 不等于并行：争用核与带宽、分片启动、数据依赖与 Host 等待都会把收益吃回去。",
    ),
    "formula_note": (
        "a: the products, b: their all-reduces, each alone, summed over all places i of the step. In pieces t can exceed a + b: each piece starts up again.",
        "a 为矩阵乘，b 为其 all-reduce，各自单独的时间，对单步中每一处 i 求和。分片后 t 也可能超过 a + b：每片都要重新启动。",
    ),
    "tokens": ("Tokens in the prefill", "prefill token 数"),
    "ranks": ("Cards", "卡数"),
    "chart": ("Products and their all-reduces, by number of pieces", "矩阵乘与其 all-reduce，随分片数变化"),
    "chart_alt": (
        "Line from 1 to {most} pieces: {serial} one after the other, {best} at best, against the ideal {ideal}.",
        "1 到 {most} 片：依次执行 {serial}，最好 {best}，理想 {ideal}。",
    ),
    "pieces": ("Pieces", "片数"),
    "step_ms": ("ms", "ms"),
    "serial": ("one after the other: a + b", "依次：a + b"),
    "ideal": ("perfect hiding: max(a, b)", "完全掩盖：max(a, b)"),
    "found": ("predicted", "预测"),
    "fused": ("in one kernel", "融合为一个 kernel"),
    "nothing_to_cut": (
        "Here no product stands before a collective that could be sent in pieces: there is nothing to overlap.",
        "这里没有可以分片发送的“矩阵乘 + 集合通信”：没有可重叠的对象。",
    ),
    "spoilers": ("What spoils it", "什么会破坏重叠"),
    "spoilers_alt": (
        "Dots with intervals: the step without overlap over the step with it, in each case.",
        "各情形下不重叠与重叠的单步时间之比及区间。",
    ),
    "case": ("Case", "情形"),
    "relative": ("Step without overlap / with it", "不重叠单步 / 重叠单步"),
    "case_good": ("{pieces} pieces, {tokens} tokens", "{pieces} 片，{tokens} token"),
    "case_few": ("few tokens: {tokens}", "token 太少：{tokens}"),
    "case_sync": ("host waits after each op", "Host 每个算子后等待"),
    "case_streams": ("two streams, one HBM (decode)", "两条 stream 争 HBM"),
    "answer": (
        "{tokens} tokens on {ranks} cards: {serial} one after the other, {found} in {pieces} pieces, {ideal} if hiding were "
        "perfect; {lost} are lost to start-up and to sharing cores and HBM.",
        "{ranks} 张卡、{tokens} token：依次 {serial}，{pieces} 片 {found}，完全掩盖 {ideal}；启动与争用损失 {lost}。",
    ),
    "layer": ("One layer, pieces: {pieces}, time: {time}", "一层，{pieces} 片：{time}"),
    "layer_alt": (
        "Timeline of one layer: streams of kernels above, transfers below, pieces: {pieces}, time: {time}",
        "一层的时间线：上为 kernel 的 stream，下为传输，{pieces} 片，{time}",
    ),
    "layer_note": (
        "A stream is empty where it waits for an event of another: put the wait where the data is needed, not before.",
        "stream 空着的地方是在等另一条 stream 的事件：把等待放在真正需要数据的位置，而不是更早。",
    ),
    "guess": (
        "Computing takes 368 µs, communicating 437 µs. Overlapped perfectly, how long do both take?",
        "计算 368 µs，通信 437 µs。完全重叠时共需多久？",
    ),
    "guess_a": (
        "805 µs",
        "805 µs",
    ),
    "guess_b": (
        "437 µs",
        "437 µs",
    ),
    "guess_c": (
        "403 µs",
        "403 µs",
    ),
    "guess_right": ("b", "b"),
    "guess_why": (
        "The longer of the two is the bound. What is measured lies between it and the sum: pieces start up, and both want cores and HBM.",
        "较长者是下界。实测值在它与两者之和之间：分片要启动，双方都要核与 HBM。",
    ),
    "measured": (
        "A product and its all-reduce on eight 910B: 368.1 and 437.3 µs alone, 808.9 one after the other, 560.6 overlapped tile by tile (hicann/pto-isa, gemm_ar; CANN 9.0; not fitted to).",
        "八张 910B 上的矩阵乘与 all-reduce：单独 368.1 与 437.3 µs，依次 808.9，逐块重叠 560.6（hicann/pto-isa gemm_ar，CANN 9.0；未参与拟合）。",
    ),
    "limit": (
        "Shared HBM and cores are shared fairly between what runs; how a real scheduler of blocks favours one stream is not known.",
        "共享的 HBM 与核在并行者间公平分配；真实的块调度偏向哪条 stream 并不知道。",
    ),
    "question": (
        "Will a second stream help here, and how far from perfect is it?",
        "第二条 stream 在这里有用吗？离理想还差多少？",
    ),
    "try": (
        "Take fewer tokens: pieces become so small that their start-up outweighs what they hide.\n"
        "Compare with the fused kernel: it hides without a second stream.",
        "减少 token：分片太小，启动开销超过所掩盖的时间。\n与融合 kernel 对比：不需要第二条 stream 也能掩盖。",
    ),
}
