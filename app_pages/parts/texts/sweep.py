"""The sweep page in English and Chinese."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Sweep", "扫描"),
    "about": (
        "One deployment over batch, context and cards: where the limits are met, what fits, and which points nothing beats.",
        "一个部署随批大小、上下文与卡数变化：哪里满足上限，什么放得下，哪些点无法被超越。",
    ),
    "model": ("Model", "模型"),
    "hardware": ("Chip", "芯片"),
    "graph": ("Graph mode", "图模式"),
    "weights": ("Weights", "权重"),
    "over": ("Along the axis", "横轴"),
    "batch": ("requests per step", "每步请求数"),
    "context": ("context, tokens", "上下文（token）"),
    "cards": ("cards (tensor parallel)", "卡数（张量并行）"),
    "fixed": ("Held fixed: {name}", "固定：{name}"),
    "along": ("Values along it: {name}", "横轴取值：{name}"),
    "along_wrong": (
        "Values along the axis: whole numbers from 1 to {most} with commas between, at most {stops}.",
        "横轴取值：1 至 {most} 的整数，以逗号分隔，最多 {stops} 个。",
    ),
    "slo": ("TPOT limit, ms", "TPOT 上限，ms"),
    "running": ("Predicting {count} points", "正在预测 {count} 个点"),
    "counted": (
        "{done} of {count} points can run; {skipped} cannot. The first reason: {why}",
        "{count} 个点中 {done} 个可运行；{skipped} 个不可运行。第一个原因：{why}",
    ),
    "counted_all": ("All {count} points can run.", "{count} 个点全部可运行。"),
    "tpot": ("TPOT, ms", "TPOT，ms"),
    "throughput": ("Tokens/s per card", "每卡 token/s"),
    "memory": ("Memory of a card, GiB", "每卡显存，GiB"),
    "chart_alt": (
        "{what} over {axis}: {count} lines, from {low} to {high}",
        "{what}随{axis}变化：{count} 条线，从 {low} 到 {high}",
    ),
    "limit": ("limit", "上限"),
    "pareto": ("TPOT against throughput: what nothing beats", "TPOT 与吞吐：无法被超越的点"),
    "pareto_note": (
        "On the line no other point is both faster and gives more per card; left of the vertical line the limit is met.",
        "线上的点：没有其他点既更快、每卡吞吐又更高；竖线左侧满足上限。",
    ),
    "pareto_alt": (
        "{count} points, {front} of them on the front, from {fastest} ms to {most} tokens/s per card",
        "{count} 个点，其中 {front} 个在前沿上，从 {fastest} ms 到每卡 {most} token/s",
    ),
    "front": ("on the front", "在前沿上"),
    "beaten": ("beaten by another", "被其他点超越"),
    "best": (
        "Within {slo} ms: {name} gives most per card, {throughput} tokens/s at a TPOT of {tpot} ms ({ends}).",
        "在 {slo} ms 以内：{name} 每卡吞吐最高，{throughput} token/s，TPOT {tpot} ms（{ends}）。",
    ),
    "point": ("TP{cards}, batch {batch}, {context} tokens", "TP{cards}，批 {batch}，{context} token"),
    "none_within": ("No point meets {slo} ms; the fastest takes {tpot} ms.", "没有点满足 {slo} ms；最快为 {tpot} ms。"),
    "close": (
        "Its interval reaches beyond the limit: whether it is met cannot be said.",
        "其区间越过上限：无法断定是否满足。",
    ),
    "open": ("The points of the front; each opens in the Lab", "前沿上的点；每个都可在实验台中打开"),
    "col_point": ("point", "点"),
    "col_tpot": ("TPOT, ms (90 % interval)", "TPOT，ms（90 % 区间）"),
    "col_throughput": ("tokens/s per card", "每卡 token/s"),
    "col_memory": ("memory of a card", "每卡显存"),
    "col_bottleneck": ("bottleneck", "瓶颈"),
    "col_lab": ("in the Lab", "实验台"),
    "open_in_lab": ("open", "打开"),
    "source": (
        "Predicted for {hardware}; no device was used. More keys, and millions of points: whatif sweep GRID.yaml.",
        "{hardware} 的预测，未使用设备。更多参数与百万级的点：whatif sweep GRID.yaml。",
    ),
}
