"""Texts of the lesson: copy while computing."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Copy while computing", "边搬边算"),
    "claim": (
        "Inside a kernel MTE2 brings the next tile while the vector cores work on this one and MTE3 takes the last one away: the longest of the three sets the pace.",
        "kernel 内部，vector 核计算当前块时，MTE2 搬入下一块，MTE3 搬出上一块：三者中最长的决定节奏。",
    ),
    "formula_note": (
        "p: what each further tile adds. With one buffer a side the next load waits until this tile is computed, and the next result until this one is stored.",
        "p：每多一块增加的时间。每侧只有一个缓冲时，下一次搬入要等当前块算完，下一个结果要等当前结果搬出。",
    ),
    "tiles": ("Tiles of a core", "每核分块数"),
    "buffers": ("Buffers a side", "每侧缓冲数"),
    "load": ("Load of a tile (MTE2), ns", "一块搬入（MTE2），ns"),
    "compute": ("Compute (vector), ns", "计算（vector），ns"),
    "store": ("Store (MTE3), ns", "搬出（MTE3），ns"),
    "tile": ("tile {n}", "第 {n} 块"),
    "start": ("start of the kernel", "kernel 启动"),
    "lanes": ("{buffers} buffer(s) a side: {total}", "每侧 {buffers} 个缓冲：{total}"),
    "lanes_alt": (
        "Lanes of one core with {buffers} buffer(s) a side: load, compute and store of each tile, {total} in all",
        "每侧 {buffers} 个缓冲时一个核的泳道：每块的搬入、计算、搬出，共 {total}",
    ),
    "answer": (
        "{tiles} tiles take {total}: one after the other they would take {serial}, and never less than {bound}; {hidden} of what could be hidden is.",
        "{tiles} 块用时 {total}：依次执行需 {serial}，下界 {bound}；可隐藏的部分隐藏了 {hidden}。",
    ),
    "guess": (
        "Loading a tile takes 400 ns, computing it 200, storing it 100. With double buffers, what does one more tile add?",
        "一块搬入 400 ns，计算 200，搬出 100。双缓冲时，再多一块要多少时间？",
    ),
    "guess_a": ("700 ns", "700 ns"),
    "guess_b": ("400 ns", "400 ns"),
    "guess_c": ("200 ns", "200 ns"),
    "guess_right": ("b", "b"),
    "guess_why": (
        "Only the longest part is seen; the others run in its shade. Computing faster would change nothing here.",
        "只看得见最长的部分，其余在它的掩盖之下。此处算得再快也没有变化。",
    ),
    "measured": (
        "RmsNorm over rows of 1,024 FP16 values on a 910B2: 5.5 µs for one row on one core, 6.0 for two on two, 10.8 for 32 on 32 (lukaIvanic/paddle_ocr_vl_npu; fitted to). A core has one row each time: what grows is the start, with the cores that a kernel starts on.",
        "910B2 上每行 1,024 个 FP16 数的 RmsNorm：1 行用 1 个核 5.5 µs，2 行用 2 个核 6.0，32 行用 32 个核 10.8（lukaIvanic/paddle_ocr_vl_npu；参与拟合）。每个核都只有一行：增长的是启动，它随启动的核数增加。",
    ),
    "limit": (
        "All tiles of a core are equal here and wait for nothing else; in a step they also share HBM with the other cores. The Lab opens with a prompt of so many tokens that a norm gives each core this many rows.",
        "这里一个核的各块相同且不等待其他；在一步中它们还与其他核共享 HBM。实验台打开的提示词长度使归一化在每个核上正好有这么多行。",
    ),
    "question": (
        "What does a kernel wait for, and when does a second buffer stop helping?",
        "一个 kernel 在等什么？第二个缓冲何时不再有用？",
    ),
    "try": (
        "Take one buffer a side: load and compute take turns.\n"
        "Take one tile: there is nothing to hide behind, however many buffers there are.",
        "每侧只用一个缓冲：搬入与计算轮流进行。\n只用一块：无论多少缓冲都无可掩盖。",
    ),
}
