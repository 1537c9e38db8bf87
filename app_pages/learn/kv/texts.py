"""Texts of the lesson: paged and INT8 KV cache."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Paged and INT8 KV cache", "KV 分页与 INT8"),
    "claim": (
        "Paging changes where keys and values lie, not how many bytes a token has. Quantisation changes the bytes.",
        "分页改变 K/V 放在哪里，不改变每个 token 的字节数；量化改变的是字节数。",
    ),
    "block": ("Block, tokens", "块大小（token）"),
    "shared": ("Common prefix, tokens", "公共前缀（token）"),
    "moment": ("Step", "第几步"),
    "seed": ("Draw of requests", "请求抽样"),
    "contiguous": ("contiguous", "连续"),
    "paged": ("paged", "分页"),
    "map": ("{layout}: the cache at step {step}", "{layout}：第 {step} 步的缓存"),
    "map_alt": (
        "Map of {cells} blocks of a {layout} cache: {owned} reserved by {running} requests, {filled} of them filled with "
        "tokens; {waiting} requests wait.",
        "{layout}缓存的 {cells} 块：{running} 个请求占用 {owned} 块，其中有效填充 {filled}；{waiting} 个请求等待。",
    ),
    "owner": ("request", "请求"),
    "holders": ("held by", "持有者数"),
    "filled": ("filled", "填充"),
    "free": ("free", "空闲"),
    "curve": ("Requests running at once", "同时运行的请求"),
    "curve_alt": (
        "Lines over steps: at most {contiguous} requests at once in rows of full length, {paged} in blocks; all are done "
        "after {contiguous_steps} and {paged_steps} steps.",
        "随步数变化：整行最多同时 {contiguous} 个请求，分块 {paged} 个；分别在 {contiguous_steps} 与 {paged_steps} 步后完成。",
    ),
    "running": ("Running", "运行中"),
    "filled_share": ("Reserved room that holds tokens", "已占空间中有效的部分"),
    "steps": ("Steps", "步数"),
    "capacity": (
        "What {hardware} holds of {model}, {tokens} tokens a request",
        "{hardware} 可容纳的 {model} 请求（每个 {tokens} token）",
    ),
    "capacity_alt": (
        "Bars: requests at once with a contiguous or paged cache in 16 bits and INT8.",
        "连续或分页、16 位或 INT8 缓存可同时容纳的请求数。",
    ),
    "layout": ("Layout", "布局"),
    "dtype": ("Type", "类型"),
    "bits16": ("16 bits", "16 位"),
    "token_bytes": ("Bytes of a token", "每 token 字节"),
    "layers": ("layers", "层数"),
    "kv_heads": ("KV heads", "KV 头数"),
    "head_size": ("head size", "头维度"),
    "kv_tokens": ("Tokens that fit", "可容纳 token"),
    "most_requests": ("Requests at once", "同时请求"),
    "int8": (
        "INT8, computed for real: error of attention's output by what one scale covers",
        "INT8 真实计算：按一个 scale 覆盖的范围，Attention 输出误差",
    ),
    "int8_alt": (
        "Bars: largest error of attention's output with one scale per channel {channel}, a token {token}, a head {head}.",
        "Attention 输出最大误差：每通道一个 scale {channel}，每 token {token}，每头 {head}。",
    ),
    "outlier": ("Strong channels: times stronger than the rest", "强通道：比其余强多少倍"),
    "scale_channel": ("channel", "通道"),
    "scale_token": ("token", "token"),
    "scale_head": ("head", "头"),
    "error": ("Largest relative error", "最大相对误差"),
    "int8_note": (
        "Random keys of which every 32nd channel is stronger, as trained models have them: made up, not a model's. A scale "
        "that must cover strong and weak channels together leaves few steps for the weak ones.",
        "随机 key，每 32 个通道有一个更强（训练后的模型常见）：为示意而造，并非某个模型。一个 scale 同时覆盖强弱通道时，弱通道只剩很少的量化级。",
    ),
    "answer": (
        "Blocks of {block} tokens run up to {paged} requests at once where rows of full length run {contiguous}; a token has "
        "{bytes} either way, and {int8} in INT8.",
        "{block} token 的块最多同时运行 {paged} 个请求，整行只有 {contiguous} 个；每个 token 都是 {bytes}，INT8 为 {int8}。",
    ),
    "table": ("The block table of the newest request", "最新请求的块表"),
    "table_alt": (
        "Lines from {logical} logical blocks to their places among {physical} physical ones",
        "{logical} 个逻辑块到 {physical} 个物理块中位置的连线",
    ),
    "table_note": (
        "Tokens follow one another in the upper row; where each block lies is in the table, a number a block, and attention looks it up.",
        "上排中 token 依次相连；每块放在哪里记在表中，一块一个数字，注意力计算时查表。",
    ),
    "table_logical": ("logical", "逻辑"),
    "table_physical": ("physical", "物理"),
    "faster": (
        "Does paging make a step faster? Contiguous step / paged step, 8 requests in a graph: {ratio} ({ends}), {verdict}.",
        "分页会让单步更快吗？连续 / 分页，图模式 8 个请求：{ratio}（{ends}），{verdict}。",
    ),
    "faster_gain": ("yes, by that much", "会，快这么多"),
    "faster_loss": ("no: it reads a table as well", "不会：还要读一张表"),
    "faster_not distinguishable": ("not distinguishable from no difference", "与没有差别无法区分"),
    "faster_no effect": ("no difference", "没有差别"),
    "guess": (
        "A paged cache in place of a contiguous one. What happens to the bytes of a token?",
        "用分页缓存代替连续缓存，每个 token 的字节数会怎样？",
    ),
    "guess_a": (
        "halved",
        "减半",
    ),
    "guess_b": (
        "unchanged",
        "不变",
    ),
    "guess_c": (
        "smaller by the waste saved",
        "减少了省下的浪费",
    ),
    "guess_right": ("b", "b"),
    "guess_why": (
        "Paging changes where keys and values lie. Bytes shrink only where each element does, as in INT8. A step does not get faster by paging: it reads the same bytes, and a table as well.",
        "分页改变 K/V 放在哪里；只有元素变小（如 INT8）字节才减少。分页不会让单步更快：读的字节相同，还要多读一张表。",
    ),
    "measured": (
        "Qwen3-0.6B steps of a static cache that is read whole: 1.88 ms at 1,024 tokens, 2.22 at 4,096, 3.44 at 16,384 (lukaIvanic/paddle_ocr_vl_npu; not fitted to): what is read takes the time, wherever it lies. No public row that we know measures a paged next to a contiguous cache.",
        "整段读取的静态缓存，Qwen3-0.6B 单步：1,024 token 1.88 ms，4,096 为 2.22，16,384 为 3.44（lukaIvanic/paddle_ocr_vl_npu；未参与拟合）：耗时的是读取的字节，与放在哪里无关。我们所知的公开数据都没有对比过分页与连续缓存。",
    ),
    "limit": (
        "What INT8 keys do to the quality of a long answer is not predicted: run it with trained weights. The requests drawn here are made up.",
        "INT8 对长文本质量的影响无法预测：请用训练过的权重实测。此处的请求是虚构的。",
    ),
    "question": (
        "Will paging let me serve more requests, and does it make a step faster?",
        "分页能让我服务更多请求吗？会让单步更快吗？",
    ),
    "try": (
        "Give the requests a common prefix: shared blocks are held once, counted by their holders.\n"
        "Make blocks larger: less of a table, more waste in each last block.",
        "给请求一个公共前缀：共享块只存一份，按持有者计数。\n增大块：表更短，但末块浪费更多。",
    ),
}
