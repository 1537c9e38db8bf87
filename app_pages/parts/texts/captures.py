"""What a profile says, for readers of Chinese: its bottleneck from its own numbers; advice, changes, notes and
assumptions as patterns. What no pattern knows is shown as it is, and called the original.
"""

from __future__ import annotations

import re
from typing import Any

from app_pages.parts.formats import ms, number, percent, whole
from app_pages.parts.texts import Language
from app_pages.parts.texts.refusals import ORIGINAL

EVIDENCE_ZH = {
    "host-bound": "设备在一步中空闲 {free_share}（{total} 中的 {free}）；其中 {late} 是 Host 尚未下发{calls}；kernel 只需 {computing}。",
    "idle-bound": "设备在一步中空闲 {free_share}（{total} 中的 {free}）；其中 {queued} 时下一个 kernel 已下发、在等别的："
    "另一条 stream、拷贝或自身启动；Host 迟到 {late}；kernel 只需 {computing}。",
    "communication-bound": "一步的 {comm_share}（{total} 中的 {comm}）是没有被隐藏的集合通信，其中等待 {wait}{whom}。",
    "mixed": "没有占主导的部分：设备空闲 {free_share}，未被隐藏的通信占 {comm_share}，kernel {computing}。",
    "kernels": "kernel 时间主要在 {top}（{top_time}，{top_count} 次）；设备在一步中空闲 {free_share}。",
}

_N = r"([0-9][0-9,.]*)"
#: (pattern of a sentence, Chinese).
PATTERNS: tuple[tuple[str, str], ...] = (
    (rf"a graph launches all kernels at once: the host is late in {_N} ms of idle time", r"图一次下发全部 kernel：空闲中有 \1 ms 是 Host 迟到"),
    (r"a second host thread launches while Python dispatches", "Python 分发时由第二个 Host 线程下发"),
    (r"the device idles; a profile with host calls would say why", "设备有空闲；带 Host 调用的性能数据能说明原因"),
    (rf"{_N} ms idle though the kernel was queued: waits between streams, copies, starts", r"kernel 已入队仍空闲 \1 ms：stream 间等待、拷贝、启动"),
    (r"no collective overlaps with computing", "没有集合通信与计算重叠"),
    (rf"balance the ranks: this one waits {_N} ms, most for rank (\d+)", r"均衡各 rank：此 rank 等待 \1 ms，主要等 rank \2"),
    (rf"find the rank that is late: collectives wait {_N} ms and move nothing", r"找出迟到的 rank：集合通信等待 \1 ms，没有传输"),
    (rf"8-bit weights: {_N} ms in matrix products of 16 or 32 bit", r"8 位权重：16 或 32 位矩阵乘占 \1 ms"),
    (rf"fuse Add with the norm behind it: {_N} ms in such Adds", r"把 Add 与其后的归一化融合：这样的 Add 占 \1 ms"),
    (rf"fuse small kernels: {_N} of {_N} us on average on the vector cores", r"融合小 kernel：向量核上 \1 个，平均 \2 µs"),
    (r"no collectives: the bound of hiding them", "没有集合通信：隐藏通信的上界"),
    (r"no waiting for other ranks", "不等待其他 rank"),
    (r"the step as a captured graph", "整步作为捕获的图"),
    (r"transfers take part of their time", "传输只用一部分时间"),
    (r"INT8 matrix products", "INT8 矩阵乘"),
    (r"primitives become one kernel", "多个基础 kernel 合为一个"),
    (r"kernels of a family take other times", "一类 kernel 的时间改变"),
    (r"a family on a stream of its own", "一类 kernel 放到自己的 stream"),
    (rf"{_N} waits longer than this rank's own time since the collective before stay: no jitter explains them", r"\1 处等待长于此 rank 自上次集合通信以来的时间，保持不变：抖动无法解释"),
    (rf"{_N} of the fused kernels by their bytes at the best rate of their primitives, as long as the shortest of them to twice the longest; name a hardware profile to price them", r"\1 个融合 kernel 按字节与其基础 kernel 的最好速率估计，区间从最短者到最长者的两倍；指定硬件可为其定价"),
    (rf"{_N} of the fused kernels priced on (\S+), within (\d+)%", r"\1 个融合 kernel 按 \2 定价，误差 \3 % 以内"),
    (rf"{_N} runs of (.+?)'s primitives(?:, Q and K together)? become (\S+)", r"\1 处 \2 的基础 kernel 合为 \3"),
    (rf"{_N} calls of the host are saved, each with the host's work in front of it; that of a fused kernel costs as on (\S+)", r"省去 Host \1 次调用及其前的工作；融合 kernel 的调用同 \2"),
    (rf"{_N} calls of the host are saved, each with the host's work in front of it; that of a fused kernel costs that of the last primitive, at worst twice that", r"省去 Host \1 次调用及其前的工作；融合 kernel 的调用同最后一个基础 kernel，最坏两倍"),
    (rf"{_N} calls more on the host, one for each quantisation, as long as the product's own", r"Host 多 \1 次调用（每次量化一次），与矩阵乘的调用同长"),
    (rf"{_N} calls more on the host, one for each quantisation, as on (\S+)", r"Host 多 \1 次调用（每次量化一次），同 \2"),
    (rf"{_N} products take {_N} times as long \(a half where only weights are read\), quantising of inputs included; name a hardware profile to price them", r"\1 个矩阵乘的时间为原来的 \2（只读权重时为一半），含输入量化；指定硬件可为其定价"),
    (rf"{_N} products times the ratio of their INT8 and 16-bit prices on (\S+) \(within (\d+)%\), a dynamic quantisation in front, shared by products in a row that read one shape", r"\1 个矩阵乘按 \2 上 INT8 与 16 位价格之比（误差 \3 % 以内），前加动态量化，连续读同一形状者共用"),
    (r"lengths that attention kernels take from the host are inputs of the graph: no updates of parameters", "注意力 kernel 从 Host 取得的长度作为图的输入：无需更新参数"),
    (r"the product with the vocabulary stays as it is", "与词表相乘的矩阵乘保持不变"),
    (rf"the profile has no calls: all of what streams idle beyond {_N} us is taken for the host's \((.+)\)", r"性能数据中没有调用：stream 空闲超过 \1 µs 的部分都算作 Host 的（\2）"),
    (rf"waiting for other ranks takes {_N} of its time, as the rest of the step does: their hosts launch graphs too \(at best none is left, at worst all of it\)", r"等待其他 rank 为原来的 \1，与其余部分同样缩短：它们的 Host 也下发图（最好全部消失，最坏不变）"),
    (rf"{_N} collectives take no time at all, waiting included: no optimisation of them gains more", r"\1 个集合通信不占时间（含等待）：对它们的任何优化都不会更多"),
    (rf"{_N} calls of the host are saved; what one rank sends, another still waits for", r"省去 Host \1 次调用；一个 rank 发送的，另一个仍要等"),
    (rf"{_N} collectives transfer in {_N} of their time; waiting for other ranks stays", r"\1 个集合通信的传输为原来的 \2；等待其他 rank 不变"),
    (rf"{_N} collectives find all other ranks waiting already; sends and receives stay", r"\1 个集合通信开始时其他 rank 都已在等；收发不变"),
    (
        rf"{_N} launch(?:es)? of a graph, {_N} us each, instead of {_N} calls; at most {_N} us between two nodes \((.+)\)",
        r"\1 次图下发（每次 \2 µs）代替 \3 次调用；节点之间至多 \4 µs（\5）",
    ),
    (r"a wait of the host for the device ends a graph; what the host does before it and after it stays", "Host 等待设备处图结束；其前后 Host 所做不变"),
    (rf"{_N} kernels run on a stream of their own; {_N} of them wait by shapes alike, the others for their neighbours", r"\1 个 kernel 在自己的 stream 上；其中 \2 个按相同形状等待，其余等相邻者"),
    (r"kernels that run together are not slowed: cores and HBM are taken to suffice for both", "同时运行的 kernel 不变慢：假定核与 HBM 足够"),
    (r"waiting for ranks that are not here stays as long as it was measured, as if they changed alike", "等待不在此处的 rank 保持测得的时长，视为它们同样改变"),
    (rf"{_N} waits between streams or threads are not in the profile and were read off the times", r"\1 处 stream 或线程间的等待不在性能数据中，由时间推出"),
    (rf"{_N} collectives begin when the last of the ranks here arrives", r"\1 个集合通信在此处最后一个 rank 到达时开始"),
    (rf"{_N} collectives of one name do not overlap in time on all ranks: each is replayed alone", r"\1 个同名集合通信在各 rank 上时间不重叠：各自重放"),
    (r"no launches in the profile: what streams idle between kernels is taken for the host's", "性能数据中没有下发记录：stream 上 kernel 之间的空闲算作 Host 的"),
    (rf"{_N} tasks begin before the one ahead of them on their stream has ended", r"\1 个任务在同一 stream 的前一个结束之前开始"),
    (r"a trace of PyTorch: no reported step times, no shapes of kernels", "PyTorch 的 trace：没有报告的步时间，没有 kernel 形状"),
    (r"a trace of this tool: one step, no reported step times", "本工具的 trace：一步，没有报告的步时间"),
    (r"the prediction beside it in the file was left out", "文件中的预测部分被略去"),
    (r"a PREDICTION, not a measurement", "这是预测，不是测量"),
    (r"step_trace_time\.csv is missing", "缺少 step_trace_time.csv"),
    (r"trace_view\.json is missing: kernels and collectives only, no host calls and no launches", "缺少 trace_view.json：只有 kernel 与集合通信，没有 Host 调用与下发"),
    (rf"{_N} requests? in flight", r"\1 个在途请求"),
    (rf"{_N} requests/s", r"\1 请求/s"),
    (rf"only ([AB]) has the load {_N} requests? in flight", r"只有 \1 有 \2 个在途请求的负载"),
    (rf"only ([AB]) has the load {_N} requests/s", r"只有 \1 有 \2 请求/s 的负载"),
    (rf"{_N} of {_N} load tests lack TTFT or TPOT and are left out", r"\2 个压测中有 \1 个缺少 TTFT 或 TPOT，已略去"),
    (r"(.+): the first of (\d+) timelines; name another as (.+)", r"\1：\2 条时间线中的第一条；其他可写作 \3"),
    (r"step (\S+), one of (\d+)", r"第 \1 步，共 \2 步"),
)  # fmt: skip
_KNOWN = tuple((re.compile(pattern), chinese) for pattern, chinese in PATTERNS)


def translated(text: str, language: Language) -> str:
    """A sentence of advice, a change's title, a note or an assumption in the reader's language."""
    if language == "en":
        return text
    for pattern, chinese in _KNOWN:
        if match := pattern.fullmatch(text):
            return match.expand(chinese)
    return f"{ORIGINAL}{text}"


def evidence(result: dict[str, Any], language: Language) -> str:
    """Why the bottleneck is what it is, from the numbers of an `import` document."""
    said: str = result["bottleneck"]["evidence"]
    if language == "en":
        return f"{said[:1].upper()}{said[1:]}."
    name = result["bottleneck"]["name"]
    template = EVIDENCE_ZH.get(name, EVIDENCE_ZH["kernels"])
    step, gaps = result["step"], result["host_gaps"]
    total = step["total_us"] or 1.0
    calls = "、".join(f"{call['name'][:40]}（{ms(call['late_us'])}）" for call in gaps["calls"][:3])
    top: dict[str, Any] = result["kernels"][0] if result["kernels"] else {"op_type": "–", "total_us": 0.0, "count": 0}
    late = result["slowest_rank"]
    return template.format(
        total=ms(step["total_us"]),
        free=ms(step["free_us"]),
        free_share=percent(step["free_us"] / total),
        late=ms(gaps["host_late_us"]),
        queued=ms(gaps["queued_us"]),
        calls=f"，主要在 {calls}" if calls else "",
        computing=ms(step["computing_us"]),
        comm=ms(step["communication_not_overlapped_us"]),
        comm_share=percent(step["communication_not_overlapped_us"] / total),
        wait=ms(result["ranks"][0]["wait_us"]),
        whom="" if late is None else f"，主要等 rank {late}",
        top=top["op_type"],
        top_time=ms(top["total_us"]),
        top_count=whole(top["count"]),
        number=number(total),
    )
