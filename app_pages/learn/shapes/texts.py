"""Texts of the lesson: what a new shape costs."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("What a new shape costs", "新 shape 的代价"),
    "claim": (
        "A graph is made for a shape: what hits the cache is replayed, a new shape is captured or compiled first, or padded to one that is there. Warm up with the shapes that you will serve.",
        "图是为某个 shape 制作的：命中缓存就重放，新 shape 要先捕获或编译，或补齐到已有的尺寸。请用将要服务的 shape 预热。",
    ),
    "graph": ("Graph mode", "图模式"),
    "new": ("New shapes later on", "之后遇到的新 shape 数"),
    "batch": ("Requests", "请求数"),
    "cold": ("First run, more", "首次运行多花"),
    "shapes": ("{n} shape(s) made at the start", "启动时制作 {n} 个 shape"),
    "one_more": ("One more shape", "再来一个 shape"),
    "padded": ("aclgraph pads to", "aclgraph 补齐到"),
    "asked": ("{n} in the batch", "实际 {n} 个"),
    "requests": ("requests", "个请求"),
    "steps": ("Steps", "步数"),
    "never": ("never", "永不"),
    "curve": ("Time of a run by its steps", "一次运行的总时间随步数变化"),
    "curve_alt": (
        "Lines over 0 to {steps} steps: op by op, a graph that always hits, a graph with {new} new shapes",
        "0 到 {steps} 步：逐算子、总是命中的图、遇到 {new} 个新 shape 的图",
    ),
    "by_op": ("op by op", "逐算子"),
    "hits": ("graph, every shape is there", "图，全部命中"),
    "misses": ("graph, {n} new shapes", "图，{n} 个新 shape"),
    "keys": ("What the cache is asked for", "缓存按什么查找"),
    "keys_note": (
        "What makes a key differs by mode and version; look it up for yours.",
        "键的构成因模式与版本而异，请查阅你的版本。",
    ),
    "mode": ("mode", "模式"),
    "key": ("a graph for each", "每个什么一张图"),
    "miss": ("what a miss does", "未命中时"),
    "key_aclgraph": ("captured size of the batch", "捕获的批大小"),
    "key_npugraph_ex": ("captured size, and the traced function's guards", "捕获的批大小，以及所追踪函数的守卫条件"),
    "key_ge_graph": ("compiled shape of all inputs", "全部输入的编译 shape"),
    "miss_aclgraph": ("pads to the next size; beyond the largest, op by op", "补齐到下一个尺寸；超过最大者则逐算子"),
    "miss_npugraph_ex": ("traces and captures again", "重新追踪并捕获"),
    "miss_ge_graph": ("compiles again, the longest of all", "重新编译，最久"),
    "answer": (
        "{graph}: a hit takes {replay} in place of {eager}; one new shape costs {one}, as much as {worth} steps. All in all it is paid back after {back} steps.",
        "{graph}：命中为 {replay}，逐算子为 {eager}；一个新 shape 花 {one}，相当于 {worth} 步。总计 {back} 步后收回。",
    ),
    "guess": (
        "A compiled graph replays a step in some milliseconds. A request comes with a shape that has not come before. What does its first step take?",
        "编译好的图数毫秒重放一步。来了一个从未见过的 shape，它的第一步要多久？",
    ),
    "guess_a": ("as long as a replay", "与重放一样久"),
    "guess_b": ("a little more, for padding", "略多，因为补齐"),
    "guess_c": ("seconds, if it must be compiled", "若须编译则数秒"),
    "guess_right": ("c", "c"),
    "guess_why": (
        "The cache has no graph under that key. Captured sizes with padding avoid it; a whole-graph compile of exact shapes does not.",
        "缓存中没有该键的图。带补齐的捕获尺寸可以避免；按确切 shape 的整图编译则不能。",
    ),
    "measured": (
        "Replayed, a decode step of Qwen3-8B in Hugging Face style code with nothing fused takes 14.5 ms on a 910B2, op by op 62.9 (lukaIvanic/paddle_ocr_vl_npu). No public source that we know states what capture or compilation took on Ascend: those seconds are assumed.",
        "910B2 上 Hugging Face 风格、未融合的 Qwen3-8B 解码步：重放 14.5 ms，逐算子 62.9（lukaIvanic/paddle_ocr_vl_npu）。我们所知的公开来源都没有给出昇腾上捕获或编译的耗时：这些秒数是假定值。",
    ),
    "limit": (
        "Seconds of capture and compilation are assumed for each node; their order counts, not their digits. Measure your own cold start.",
        "捕获与编译的秒数按每个节点假定；看量级，不看位数。请测量你自己的冷启动。",
    ),
    "question": (
        "Why do I have to warm up a graph, and what does a shape cost that I forgot?",
        "为什么图模式需要预热？漏掉一个 shape 的代价是什么？",
    ),
    "try": (
        "Let new shapes come: the line starts higher and meets the eager one later.\n"
        "Take a batch between two captured sizes: aclgraph pads it and computes for requests that are not there.",
        "增加新 shape：线的起点更高，与逐算子相交更晚。\n取两个捕获尺寸之间的批大小：aclgraph 补齐后为不存在的请求计算。",
    ),
}
