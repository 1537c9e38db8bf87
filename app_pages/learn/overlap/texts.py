"""Texts of the lesson: overlap of computing and communication."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Overlap, and what spoils it", "重叠，以及什么会破坏它"),
    "claim": (
        "Run side by side, two things take from a + b towards max(a, b). Two streams are not a promise: shared cores and "
        "bandwidth, start-up of pieces, dependencies and waiting hosts all take their part back.",
        "并行执行使耗时从 a+b 趋向 max(a,b)。两条 stream 不等于并行：争用核与带宽、分片启动、数据依赖与 Host 等待都会把收益吃回去。",
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
    "spoilers": ("What spoils it", "什么会破坏重叠"),
    "spoilers_alt": ("Bars: step time relative to no overlap in each case.", "各情形下相对不重叠的单步时间。"),
    "case": ("Case", "情形"),
    "relative": ("Step, relative to no overlap", "单步（相对不重叠）"),
    "case_good": ("{pieces} pieces, {tokens} tokens", "{pieces} 片，{tokens} token"),
    "case_few": ("few tokens: {tokens}", "token 太少：{tokens}"),
    "case_sync": ("host waits after each op", "Host 每个算子后等待"),
    "case_streams": ("two streams, one HBM (decode)", "两条 stream 争 HBM"),
    "answer": (
        "{tokens} tokens on {ranks} cards: {serial} one after the other, {found} in {pieces} pieces, {ideal} if hiding were "
        "perfect; {lost} are lost to start-up and to sharing cores and HBM.",
        "{ranks} 张卡、{tokens} token：依次 {serial}，{pieces} 片 {found}，完全掩盖 {ideal}；启动与争用损失 {lost}。",
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
