"""Texts of the lesson: the seven-step experiment."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("An experiment in seven steps", "七步实验"),
    "claim": (
        "Fix the setting, warm up, find the bottleneck, change one factor at a time, check the output, compare, and record "
        "cold start and other shapes. Single gains need not multiply.",
        "固定设置、预热、定位瓶颈、一次只改一个因素、检查输出、比较指标、记录冷启动与其他 shape。单项收益不一定能相乘。",
    ),
    "factors": ("Factors", "因素"),
    "batch": ("Requests", "请求数"),
    "input": ("Context, tokens", "上下文（token）"),
    "step1": ("1  Fix the setting", "1  固定设置"),
    "step1_text": (
        "{model} on {hardware}, batch {batch}, {input} tokens each, bf16 weights, greedy; every optimisation off.",
        "{model} 于 {hardware}，batch {batch}，各 {input} token，bf16 权重，贪心采样；所有优化关闭。",
    ),
    "step2": ("2  Warm up", "2  预热"),
    "step2_text": (
        "A prediction is always warm. On a device the first runs do not count: whatif experiment shows how long they drift.",
        "预测总是热的。在设备上最初几次不计：whatif experiment 会显示漂移多久。",
    ),
    "colon": (": ", "："),
    "step3": ("3  Find the bottleneck", "3  定位瓶颈"),
    "step4": ("4  Change one factor at a time", "4  一次只改一个因素"),
    "step5": ("5  Check the output", "5  检查输出"),
    "step5_text": (
        "Computed here in bfloat16 on 64 rows of 4,096: primitives are {primitives} off float64, the fused norm {fused}; they differ by {apart} of the largest value, {tolerance} is allowed: {passed}. Task quality needs trained weights: whatif experiment --backend cpu compares tokens and logits.",
        "此处以 bfloat16 计算 64 行、每行 4096 个数：基础算子相对 float64 误差 {primitives}，融合后 {fused}；两者相差最大值的 {apart}，允许 {tolerance}：{passed}。任务质量需要训练过的权重：whatif experiment --backend cpu 会比较 token 与 logits。",
    ),
    "passes": ("passed", "通过"),
    "fails": ("not passed", "未通过"),
    "step6": ("6  Compare, together too", "6  比较，也比较组合"),
    "step6_text": (
        "Multiplied, the single gains promise {product}; all together give {together}. {why}",
        "单项相乘应为 {product}；一起打开得到 {together}。{why}",
    ),
    "less": ("Some of them save the same time.", "其中一些节省的是同一段时间。"),
    "more": (
        "They help each other: one removes what hid the other's gain.",
        "它们互相促进：一个消除了掩盖另一个收益的因素。",
    ),
    "same": ("They act on different parts of the step.", "它们作用于单步的不同部分。"),
    "step7": ("7  Cold start and other shapes", "7  冷启动与其他 shape"),
    "step7_text": (
        "The first run takes {cold} more; after {steps} steps that is paid back.",
        "首次运行多花 {cold}；{steps} 步后收回。",
    ),
    "step7_never": (
        "The first run takes {cold} more, and a step is not shorter: it is never paid back.",
        "首次运行多花 {cold}，而单步没有变短：永远收不回。",
    ),
    "step7_none": ("Nothing is captured or compiled: there is no cold start to pay.", "没有捕获或编译：无冷启动代价。"),
    "gains_chart": ("Gain of each factor alone, and of all", "各因素单独与全部的收益"),
    "gains_alt": (
        "Bars with intervals for {count} factors; alone they multiply to {product}, together {together}.",
        "{count} 个因素及区间；相乘 {product}，一起 {together}。",
    ),
    "gain": ("Step before / after", "单步：前 / 后"),
    "product": ("product of single gains", "单项之积"),
    "together": ("all together", "一起打开"),
    "shapes_chart": ("Other shapes: step before and after", "其他 shape：单步前后"),
    "shapes_alt": ("Bars for {batches} requests: before and after all factors.", "{batches} 个请求：全部因素前后。"),
    "before": ("before", "之前"),
    "after": ("after", "之后"),
    "requests": ("Requests", "请求数"),
    "step_ms": ("Step, ms", "单步，ms"),
    "verdict_gain": ("adopt", "采用"),
    "verdict_loss": ("do not adopt", "不采用"),
    "verdict_not distinguishable": ("not distinguishable", "无法区分"),
    "verdict_no effect": ("no effect", "无效果"),
    "nothing": ("Choose at least one factor.", "请至少选择一个因素。"),
    "answer": (
        "From {before} to {after} with {count} factors; the bottleneck moves from {bottleneck} to {bottleneck_after}.",
        "{count} 个因素：{before} 到 {after}；瓶颈：{bottleneck} → {bottleneck_after}。",
    ),
    "answer_stays": (
        "From {before} to {after} with {count} factors; the step stays {bottleneck}.",
        "{count} 个因素：{before} 到 {after}；瓶颈不变：{bottleneck}。",
    ),
    "guess": (
        "RMSNorm fusion and a graph each make an eager step faster alone. Together?",
        "融合 RMSNorm 与图模式单独都能加快 eager 的单步。一起呢？",
    ),
    "guess_a": (
        "as much as the product of both",
        "正好等于两者之积",
    ),
    "guess_b": (
        "less than the product",
        "小于两者之积",
    ),
    "guess_c": (
        "more than the product",
        "大于两者之积",
    ),
    "guess_right": ("b", "b"),
    "guess_why": (
        "Both save launches. What the graph has saved already, fusion cannot save again.",
        "两者都节省下发。图已经省下的，融合不能再省一次。",
    ),
    "measured": (
        "Measured in turn on a 910B2: RMSNorm fused 15.11 to 14.41 ms, then Add, projections and more to 12.64, weight layout NZ after that to 16.67, a loss (lukaIvanic/paddle_ocr_vl_npu; not fitted to).",
        "910B2 上依次实测：融合 RMSNorm 15.11 到 14.41 ms，再融合 Add 与投影等到 12.64，之后改用 NZ 权重布局到 16.67，是损失（lukaIvanic/paddle_ocr_vl_npu；未参与拟合）。",
    ),
    "limit": (
        "A prediction has no output: task quality must be measured with trained weights on a device.",
        "预测没有输出：任务质量必须用训练过的权重在设备上测量。",
    ),
    "question": ("How do I know that it was this change, and not another?", "怎么知道是这一项改动带来的，而不是别的？"),
    "try": (
        "Choose RMSNorm fusion and graph mode: each alone saves launches, together they save them once.\n"
        "Run it for real: whatif experiment tiny_llama_cpu --backend cpu",
        "选择 RMSNorm 融合与图模式：单独都节省下发，一起只能省一次。\n真实运行：whatif experiment tiny_llama_cpu --backend cpu",
    ),
}
