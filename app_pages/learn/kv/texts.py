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
