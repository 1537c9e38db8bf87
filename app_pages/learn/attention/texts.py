"""Texts of the lesson: attention with online softmax."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Attention in tiles", "分块的 Attention"),
    "claim": (
        "A fused attention kernel never holds the whole matrix of scores: tiles of keys pass through the core, and a "
        "running maximum and sum keep the softmax exact.",
        "融合的 Attention 不需要把整个分数矩阵装入 UB：key 分块流过计算核，用滑动的最大值与和保持 softmax 精确。",
    ),
    "tokens": ("Prompt, tokens", "提示长度（token）"),
    "tile": ("Tile, keys", "分块（key 数）"),
    "rows": ("Queries in a tile", "块内 query 数"),
    "precision": ("Precision", "精度"),
    "unfused": ("several kernels", "多个 kernel"),
    "fused": ("one kernel", "一个 kernel"),
    "forms_chart": ("Attention of one layer: bytes moved and time", "一层 Attention：搬运字节与时间"),
    "forms_alt": (
        "Two bars: unfused attention moves {unfused} and takes {unfused_time}, fused {fused} and {fused_time}.",
        "两组条形：未融合搬运 {unfused}、耗时 {unfused_time}；融合后 {fused}、{fused_time}。",
    ),
    "moved": ("Bytes moved", "搬运字节"),
    "time": ("Time", "时间"),
    "room_chart": ("What must be on chip at once", "片上同时需要的空间"),
    "room_alt": (
        "Bars on a logarithmic axis: the whole scores of one head {whole}, one tile {tile}, against UB {ub} and L1 {l1}.",
        "对数坐标：一个头的完整分数 {whole}，一个分块 {tile}，对照 UB {ub} 与 L1 {l1}。",
    ),
    "relative": ("relative to several kernels", "相对多个 kernel"),
    "needed": ("needed", "需要"),
    "there": ("on chip", "片上"),
    "whole_scores": ("scores of one head, whole", "一个头的完整分数"),
    "one_tile": ("one tile with its keys and values", "一个分块及其 K、V"),
    "ub": ("UB of a vector core", "vector 核的 UB"),
    "l1": ("L1 of a cube core", "cube 核的 L1"),
    "fits": ("A tile fits the UB.", "一个分块装得进 UB。"),
    "fits_not": (
        "This tile does not fit the UB: a smaller one is needed, or half of it waits in L1.",
        "这个分块装不进 UB：需要更小的分块，或让一半留在 L1。",
    ),
    "online_chart": (
        "Tile by tile: running maximum, and the error if one stopped there",
        "逐块：滑动最大值，以及若在此停止的误差",
    ),
    "online_alt": (
        "Line over {tiles} tiles: the running maximum rises to {maximum}; the error falls to {error} with the last tile.",
        "共 {tiles} 块：滑动最大值升至 {maximum}；误差到最后一块降为 {error}。",
    ),
    "keys_seen": ("Keys seen", "已处理的 key"),
    "maximum": ("Running maximum", "滑动最大值"),
    "error": ("Error so far", "当前误差"),
    "rescaled": ("Maximum rose", "最大值上升"),
    "online_note": (
        "Computed for real on {rows} random queries and {keys} keys: {rescaled} times a new maximum rescaled what was "
        "summed before. Error against float64: {online} in tiles, {whole} when all scores are written in {precision} in "
        "between.",
        "真实计算：{rows} 个随机 query、{keys} 个 key；新的最大值使已累加部分重缩放 {rescaled} 次。"
        "相对 float64 的误差：分块 {online}，分数以 {precision} 写回时 {whole}。",
    ),
    "answer": (
        "{tokens} tokens: one kernel moves {saved} fewer bytes than {kernels} and is faster by {time_ratio}; the largest "
        "tensor in between, {peak}, is never written.",
        "{tokens} 个 token：一个 kernel 比 {kernels} 个少搬 {saved} 的字节，快 {time_ratio}；中间最大的张量（{peak}）从未写出。",
    ),
    "flops_note": (
        "The unfused form multiplies the whole square, the fused one only what the causal mask lets through: here fusion "
        "also skips arithmetic, which the formula does not need.",
        "未融合时计算整个方阵，融合后只算因果掩码允许的部分：这里确实省了运算，但公式本来就不需要它们。",
    ),
    "guess": (
        "Scores of 8,192 tokens in one head take 256 MiB in float32. Must that fit the UB?",
        "8192 个 token 在一个头内的分数以 float32 需 256 MiB。它必须装进 UB 吗？",
    ),
    "guess_a": (
        "yes, or it goes through HBM",
        "必须，否则经过 HBM",
    ),
    "guess_b": (
        "no: tiles and a running maximum are enough",
        "不必：分块加滑动最大值就够",
    ),
    "guess_c": (
        "only in fp16",
        "仅 fp16 时",
    ),
    "guess_right": ("b", "b"),
    "guess_why": (
        "Online softmax rescales what it has summed whenever a larger score comes, so a tile at a time is exact.",
        "在线 softmax 每遇到更大的分数就把已累加部分重缩放，因此逐块计算仍然精确。",
    ),
    "measured": (
        "FusedInferAttentionScore in the decode step of Qwen3-8B on an A3 die: 19.3 µs a layer, 36 layers (hicann/cann-learning-hub). One head of 128 over a prompt on a 910B2: 58.5 µs for 1,024 tokens, 353.1 for 8,192, 3,646.2 for 32,768, whose scores would be 4 GiB in float32 (torch_npu, README of hicann/pto-isa). All are fitted to.",
        "A3 die 上 Qwen3-8B 解码步中的 FusedInferAttentionScore：每层 19.3 µs，共 36 层（hicann/cann-learning-hub）。910B2 上一个 128 维的头处理提示：1,024 token 58.5 µs，8,192 为 353.1，32,768 为 3,646.2，而其分数以 float32 需 4 GiB（torch_npu，hicann/pto-isa 的 README）。均参与拟合。",
    ),
    "limit": (
        "Prefill attention is priced with few measured rows behind it; its interval is wide where prompts are long.",
        "预填充注意力的定价背后实测行很少；长提示的区间较宽。",
    ),
    "question": ("Must the whole attention matrix fit on chip?", "必须把整个注意力矩阵装入片上吗？"),
    "try": (
        "Double the prompt: bytes of the unfused form grow fourfold, of the fused one twofold.\n"
        "Shrink the tile: the result stays, only more tiles pass.",
        "把提示加倍：未融合的字节变为四倍，融合后两倍。\n缩小分块：结果不变，只是块数增加。",
    ),
}
