"""Small captures with a known answer, written in the form of each profiler.

One step, in microseconds from its start (STEP_US apart from the next):

    host     ProfilerStep 0-900; aten::add 10-40 with Enqueue 20-25; Dequeue@aclnnAdd 26-190 on the queue's thread
    CANN     launches at 50 (Add), 90 (MatMul), 180 (RmsNorm), 95 (all-reduce), 96 (copy), on the queue's thread
    stream 2 Add 100-150, RmsNorm 200-300, MatMul 450-550, copy 600-620
    HCCL     all-reduce 250-400: its plane waits 250-350 and moves 350-395

So computing is 250, communication 150 (100 of it not overlapped, 100 of it waiting), and between the first and the last
task 50 + 50 are free. In 150-200 the host was late until 180; what ends 400-450 was launched at 90. Behind the last
task the device idles until the next step, and torch_npu counts that for this step, since it starts inside the mark.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.profile import Capture
from scenarios.profile.read import read_captures
from scenarios.timeline import StepTime

EPOCH_US = 1_764_246_877_000_000
STEP_US = 1000
#: name, op type, task type, start, duration, launched at, shapes, dtypes, busiest pipe
KERNELS = (
    ("aclnnAdd_AddAiCore_Add", "Add", "AI_VECTOR_CORE", 100, 50, 50, "16,4096;16,4096", "DT_BF16;DT_BF16", "aiv_vec"),
    ("aclnnRmsNorm_RmsNorm_RmsNorm", "RmsNorm", "AI_VECTOR_CORE", 200, 100, 180, "16,4096;4096", "DT_BF16;DT_BF16", ""),
    (
        "aclnnMatmul_MatMulV3_MatMulV3",
        "MatMulV3",
        "AI_CORE",
        450,
        100,
        90,
        "16,4096;4096,4096",
        "DT_BF16;DT_BF16",
        "aic_mte2",
    ),
)
COLLECTIVE = ("hcom_allReduce__123_0_1", 250, 150, 95)
GROUP = "5862276114690318123"
COPY = (600, 20, 96)
#: Of a step that another follows, and of the last one, us: what step_trace_time.csv reports.
STEP_TIME = {"computing": 250, "exposed": 100, "overlapped": 50, "communication": 150}
FREE_BEFORE_NEXT, FREE_OF_LAST = 650, 100
FIRST_STEP_TIME = StepTime(
    total_ns=1_000_000,
    computing_ns=250_000,
    communication_ns=150_000,
    communication_not_overlapped_ns=100_000,
    communication_wait_ns=100_000,
    overlapped_ns=50_000,
    free_ns=650_000,
)
LAST_STEP_TIME = dataclasses.replace(FIRST_STEP_TIME, total_ns=450_000, free_ns=100_000)

API_STATISTIC: list[dict[str, object]] = [
    {"Device_id": "host", "Level": "node", "API Name": "launch", "Time(us)": 10.0, "Count": 5},
    {"Device_id": "host", "Level": "acl", "API Name": "aclrtSynchronizeStream", "Time(us)": 400.5, "Count": 2},
]

PYTHON, CANN, DEVICE, HCCL, OVERLAP, FREQUENCY = 4242, 4_344_032, 4_344_224, 4_344_288, 4_344_544, 4_344_256


def us(offset: float, step: int = 0, shift: float = 0) -> str:
    """A time of the file: microseconds since the epoch with three decimals, as text."""
    ns = round((offset + step * STEP_US + shift) * 1000)
    return f"{EPOCH_US + ns // 1000}.{ns % 1000:03d}"


def torch_npu(
    folder: Path,
    rank: int = 0,
    steps: Sequence[int] = (7, 8),
    level: int = 2,
    trace: bool = True,
    communication_name: str = "HCCL",
    shift_us: float = 0,
    late_us: float = 0,
    world_size: int = 2,
) -> Path:
    """A `rank_N_ascend_pt` folder under `folder`. shift_us moves everything; late_us the start of the collective."""
    top = folder / f"rank_{rank}_ascend_pt"
    output = top / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    info = {"config": {"experimental_config": {"_profiler_level": f"Level{level}"}}, "torch_npu_version": "2.7.1"}
    write_json(top / f"profiler_info_{rank}.json", {**info, "cann_version": "8.3.RC1", "rank_id": str(rank)})
    write_json(top / "profiler_metadata.json", {"distributed_args": {"rank": rank, "world_size": world_size}})
    if trace:
        events = trace_events(steps, level, communication_name, shift_us, late_us)
        (output / "trace_view.json").write_text(json.dumps(events), encoding="utf-8")
    write_csv(output / "kernel_details.csv", kernel_details(steps, level, shift_us, late_us))
    write_csv(output / "step_trace_time.csv", step_trace_time(rank, steps, late_us))
    if level:
        write_json(output / "communication.json", communication(steps, shift_us, late_us))
        write_csv(output / "op_statistic.csv", op_statistic(len(steps)))
        write_csv(output / "api_statistic.csv", API_STATISTIC)
    return top


def write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def kernel_details(steps: Sequence[int], level: int, shift: float = 0, late: float = 0) -> list[dict[str, object]]:
    """The rows of kernel_details.csv; level 0 knows neither types nor shapes."""
    rows = []
    for number, step in enumerate(steps):
        for name, op_type, core, start, length, _, shapes, dtypes, pipe in KERNELS:
            row: dict[str, object] = {"Step Id": step, "Device_id": 0}
            known = level > 0
            if known:
                row |= {"Model ID": 4294967295, "Task ID": 1, "Stream ID": 2}
            row |= {
                "Name": name, "Type": op_type if known else "N/A", "Accelerator Core": core if known else "N/A",
                "Start Time(us)": us(start, number, shift) + "\t", "Duration(us)": f"{length}.0", "Wait Time(us)": 0,
                "Block Dim": 40 if known else 0,
            }  # fmt: skip
            if known:
                row |= {"Input Shapes": f'"{shapes}"', "Input Data Types": dtypes, "Output Shapes": '"16,4096"'}
                for column in ("aic_mte2_time(us)", "aic_mac_time(us)", "aiv_vec_time(us)", "aiv_mte2_time(us)"):
                    row[column] = 40.0 if pipe and column.startswith(pipe) else 1.0 if pipe else 0.0
            rows.append(row)
        name, start, length, _ = COLLECTIVE
        row = dict.fromkeys(rows[0], "N/A")
        row |= {
            "Step Id": step, "Device_id": 0, "Name": name, "Type": "hcom_allReduce_",
            "Accelerator Core": "COMMUNICATION" if level else "HCCL",
            "Start Time(us)": us(start + late, number, shift) + "\t", "Duration(us)": length - late, "Block Dim": 0,
        }  # fmt: skip
        rows.append(row)
    return rows


def step_trace_time(rank: int, steps: Sequence[int], late: float = 0) -> list[dict[str, object]]:
    rows = []
    for number, step in enumerate(steps):
        free = FREE_OF_LAST if number == len(steps) - 1 else FREE_BEFORE_NEXT
        overlapped = max(0, STEP_TIME["overlapped"] - late)
        rows.append(
            {
                "Device_id": rank,
                "Step": step,
                "Computing": float(STEP_TIME["computing"]),
                "Communication(Not Overlapped)": 150 - late - overlapped,
                "Overlapped": overlapped,
                "Communication": 150 - late,
                "Free": float(free),
                "Stage": 450.0,
                "Bubble": 0,
                "Communication(Not Overlapped and Exclude Receive)": 100.0,
                "Preparing": 100.0,
            }
        )
    return rows


def op_statistic(steps: int) -> list[dict[str, object]]:
    return [
        {"Device_id": 0, "OP Type": k[1], "Core Type": k[2], "Count": steps, "Total Time(us)": float(steps * k[4])}
        for k in KERNELS
    ]


def communication(steps: Sequence[int], shift: float = 0, late: float = 0) -> dict[str, Any]:
    name, start, length, _ = COLLECTIVE
    document = {}
    for number, step in enumerate(steps):
        times = {
            "Start Timestamp(us)": float(us(start + late, number, shift)), "Elapse Time(ms)": (length - late) / 1000,
            "Transit Time(ms)": 0.045, "Wait Time(ms)": 0.1, "Synchronization Time(ms)": 0.1, "Idle Time(ms)": 0.005,
        }  # fmt: skip
        op = {f"{name}@{GROUP}": {"Communication Time Info": times, "Communication Bandwidth Info": {}}}
        document[f"step{step}"] = {"p2p": {}, "collective": {**op, "Total Op Info": {"Communication Time Info": {}}}}
    return document


def trace_events(
    steps: Sequence[int], level: int = 2, communication_name: str = "HCCL", shift: float = 0, late: float = 0
) -> list[dict[str, Any]]:
    """The events of trace_view.json: the names of processes stand in the middle, as torch_npu writes them."""
    events: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        events += _host(number, step, level, shift)
    for pid, name in (
        (PYTHON, "Python"),
        (CANN, "CANN"),
        (DEVICE, "Ascend Hardware"),
        (HCCL, communication_name),
        (OVERLAP, "Overlap Analysis"),
        (FREQUENCY, "AI Core Freq"),
    ):
        events.append({"name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}, "ph": "M"})
        label = "CPU" if pid in (PYTHON, CANN) else "NPU 0"
        events.append({"name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}, "ph": "M"})
    for pid, tid, name in (
        (PYTHON, 1, "Thread 1"),
        (PYTHON, 2, "Thread 2"),
        (CANN, 2, "Thread 2"),
        (DEVICE, 2, "Stream 2"),
        (HCCL, 0, "Group 0 Communication"),
        (HCCL, 1, "Plane 0"),
        (OVERLAP, 0, "Computing"),
    ):
        events.append({"name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}, "ph": "M"})
    for number, _ in enumerate(steps):
        events += _device(number, level, shift, late)
    return events


def _slice(name: str, pid: int, tid: int, start: str, length: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, **more, "ph": "X"}


def _host(number: int, step: int, level: int, shift: float) -> list[dict[str, Any]]:
    def at(offset: float) -> str:
        return us(offset, number, shift)

    op = {"Call stack": 'a "}, {" b;\r\nc', "Input Dims": "16,4096;\r\n16,4096"}
    correlation = {"correlation_id": 100 + number}
    arrow = {"ph": "s", "bp": "e", "name": "enqueue_to_dequeue", "id": 100 + number, "cat": "async_task_queue"}
    events = [
        _slice(f"ProfilerStep#{step}", PYTHON, 1, at(0), 900.0, cat="cpu_op", args={}),
        _slice("torch/nn/module.py(1): forward", PYTHON, 1, at(5), 50.0, cat="python_function", args={}),
        _slice("aten::add", PYTHON, 1, at(10), 30.0, cat="cpu_op", args=op),
        _slice("Enqueue", PYTHON, 1, at(20), 5.0, cat="enqueue", args=correlation),
        {**arrow, "pid": PYTHON, "tid": 1, "ts": at(20)},
        _slice("Dequeue@aclnnAdd", PYTHON, 2, at(26), 164.0, cat="dequeue", args=correlation),
        {**arrow, "ph": "f", "pid": PYTHON, "tid": 2, "ts": at(26)},
    ]
    launched = [(k[5], k[0]) for k in KERNELS] + [(COLLECTIVE[3], "hcom"), (COPY[2], "copy")]
    for i, (offset, _) in enumerate(launched):
        if level:
            args = {"level": "node", "connection_id": 10 * number + i}
            events.append(_slice("Node@launch", CANN, 2, at(offset), 2.0, args=args))
        events.append(_arrow(number, i, "s", CANN, 2, at(offset)))
    return events


def _arrow(number: int, i: int, phase: str, pid: int, tid: int, ts: str) -> dict[str, Any]:
    name = f"{(10 * number + i) << 40}"
    head = {"bp": "e"} if phase == "f" else {}
    return {
        "name": f"HostToDevice{name}", "ph": phase, "id": name, "ts": ts, "cat": "HostToDevice", "pid": pid, "tid": tid,
    } | head  # fmt: skip


def _device(number: int, level: int, shift: float, late: float) -> list[dict[str, Any]]:
    def at(offset: float) -> str:
        return us(offset, number, shift)

    events = []
    for i, (name, _, core, start, length, *_) in enumerate(KERNELS):
        # A duration may have digits below a nanosecond.
        args = {"Task Type": core if level else "AI_CORE", "Physic Stream Id": 2, "connection_id": 10 * number + i}
        events.append(_slice(name, DEVICE, 2, at(start), length + 0.00003125, args=args))
        events.append(_arrow(number, i, "f", DEVICE, 2, at(start)))
    copy = {"Task Type": "PCIE_DMA_SQE", "Physic Stream Id": 2}
    events.append(_slice("MEMCPY_ASYNC", DEVICE, 2, at(COPY[0]), COPY[1], args=copy))
    events.append(_arrow(number, 4, "f", DEVICE, 2, at(COPY[0])))
    events.append(_slice("EVENT_RECORD", DEVICE, 2, at(630), 0.02, args={"Task Type": "EVENT_RECORD_SQE"}))
    name, start, length, _ = COLLECTIVE
    args = {"connection_id": 3, "data_type": "BFP16", "alg_type": "MESH", "count": 65536}
    events.append(_slice(name, HCCL, 0, at(start + late), length - late, args=args))
    events.append(_arrow(number, 3, "f", HCCL, 0, at(start + late)))
    tasks = (("Notify_Wait", "Notify Wait", start + late, 100 - late), ("Memcpy", "SDMA", 350, 45))
    for on_plane, on_stream, first, took in tasks:
        if level:
            events.append(_slice(on_plane, HCCL, 1, at(first), took, args={"task type": on_plane}))
        else:
            events.append(_slice(on_stream, DEVICE, 4, at(first), took, args={"Task Type": on_stream}))
    events.append(_slice("Computing", OVERLAP, 0, at(100), 50))
    events.append({"name": "AI Core Freq", "ts": at(0), "pid": FREQUENCY, "tid": 0, "args": {"MHz": 1800}, "ph": "C"})
    return events


def op_summary(path: Path, steps: Sequence[int] = (7,)) -> Path:
    """msprof's table of the same kernels."""
    names = {
        "Name": "Op Name", "Type": "OP Type", "Accelerator Core": "Task Type", "Start Time(us)": "Task Start Time(us)",
        "Duration(us)": "Task Duration(us)", "Wait Time(us)": "Task Wait Time(us)", "Block Dim": "Block Num",
    }  # fmt: skip
    rows = kernel_details(steps, 2)
    write_csv(path, [{names.get(k, k): v for k, v in row.items() if k != "Step Id"} for row in rows])
    return path


def task_time(path: Path, steps: Sequence[int] = (7,)) -> Path:
    """msprof's list of the tasks of a device, with some that are no kernels."""
    names = {
        "Name": "kernel_name", "Accelerator Core": "kernel_type", "Start Time(us)": "task_start(us)",
        "Duration(us)": "task_time(us)", "Stream ID": "stream_id",
    }  # fmt: skip
    kernels = [{new: row[old] for old, new in names.items()} for row in kernel_details(steps, 2)]
    other = {**kernels[0], "kernel_name": "N/A", "kernel_type": "EVENT_RECORD", "task_time(us)": "0.000"}
    write_csv(path, [other, *kernels, {**other, "kernel_type": "PROFILING_DISABLE"}])
    return path


def database(path: Path, steps: Sequence[int] = (7, 8)) -> Path:
    """ascend_pytorch_profiler_0.db with the same events."""
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    def ns(offset: float, number: int) -> int:
        return EPOCH_US * 1000 + round((offset + number * STEP_US) * 1000)

    tables: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
        "TASK": ("startNs, endNs, deviceId, connectionId, globalTaskId, taskType, streamId", []),
        "COMPUTE_TASK_INFO": (
            "name, globalTaskId, blockDim, taskType, opType, inputDataTypes, inputShapes, outputShapes", [],
        ),
        "COMMUNICATION_OP": ("opName, startNs, endNs, connectionId, groupName, count, opType", []),
        "COMMUNICATION_TASK_INFO": ("globalTaskId, taskType", []),
        "CANN_API": ("startNs, endNs, type, globalTid, connectionId, name", []),
        "PYTORCH_API": ("startNs, endNs, globalTid, connectionId, name, type", []),
        "STEP_TIME": ("id, startNs, endNs", []),
        "RANK_DEVICE_MAP": ("rankId, deviceId", [(3, 0)]),
    }  # fmt: skip

    def add(table: str, *row: Any) -> None:
        tables[table][1].append(row)

    tid = PYTHON << 32
    for n, step in enumerate(steps):
        add("STEP_TIME", str(step), ns(0, n), ns(900, n))
        add("PYTORCH_API", str(ns(10, n)), str(ns(40, n)), tid + 1, None, word("aten::add"), 50001)
        add("PYTORCH_API", str(ns(26, n)), str(ns(190, n)), tid + 2, 100 + n, word("Dequeue@aclnnAdd"), 50002)
        for i, (name, op_type, core, start, length, launch, shapes, dtypes, _) in enumerate(KERNELS):
            task = 100 * n + i
            add("CANN_API", ns(launch, n), ns(launch + 2, n), 10000, tid + 2, task, word("launch"))
            add("TASK", ns(start, n), ns(start + length, n), 0, task, task, word("KERNEL_AICORE"), 2)
            add(
                "COMPUTE_TASK_INFO",
                word(name),
                task,
                40,
                word(core),
                word(op_type),
                word(dtypes),
                word(shapes),
                word("16,4096"),
            )
        name, start, length, launch = COLLECTIVE
        add("CANN_API", ns(launch, n), ns(launch + 2, n), 10000, tid + 2, 100 * n + 50, word("launch"))
        add(
            "COMMUNICATION_OP",
            word(name),
            ns(start, n),
            ns(start + length, n),
            100 * n + 50,
            word(GROUP),
            65536,
            word("hcom_allReduce_"),
        )
        for i, (kind, first, took) in enumerate((("Notify_Wait", 250, 100), ("Memcpy", 350, 45))):
            task = 100 * n + 60 + i
            add("TASK", ns(first, n), ns(first + took, n), 0, 100 * n + 50, task, word("NOTIFY_WAIT_SQE"), 4)
            add("COMMUNICATION_TASK_INFO", task, word(kind))
        add("TASK", ns(600, n), ns(620, n), 0, 100 * n + 70, 100 * n + 70, word("MEMCPY_ASYNC"), 2)
    tables["STRING_IDS"] = ("id, value", [(number, text) for text, number in words.items()])
    _write_tables(path, tables)
    return path


def _write_tables(path: Path, tables: Mapping[str, tuple[str, list[tuple[Any, ...]]]]) -> None:
    connection = sqlite3.connect(path)
    for table, (columns, rows) in tables.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns.split(',')))})", rows)
    connection.commit()
    connection.close()


def pytorch_text(steps: Sequence[int] = (7, 8), rank: int = 1) -> str:
    """A trace of PyTorch with CUDA: the object form, times as numbers, other keys before and behind the events."""
    names = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)",
        "void rms_norm_kernel<float>(float*)",
        "ampere_bf16_s16816gemm_bf16_128x64",
    )
    lines = []

    def event(ph: str, name: str, cat: str, pid: object, tid: object, ts: str, **more: Any) -> None:
        text = json.dumps({"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": "@", **more}, indent=2)
        lines.append(text.replace('"@"', ts))

    for pid, label in ((PYTHON, "CPU"), (0, "GPU 0")):
        event("M", "process_name", "", pid, 0, "0.000", args={"name": "python"})
        event("M", "process_labels", "", pid, 0, "0.000", args={"labels": label})
    event("M", "thread_name", "", 0, 7, "0.000", args={"name": "stream 7 "})
    event("M", "thread_name", "", 0, 9, "0.000", args={"name": "stream 9 "})
    for n, step in enumerate(steps):
        event("X", f"ProfilerStep#{step}", "user_annotation", PYTHON, 1, us(0, n), dur=900.0, args={"External id": 1})
        event("X", f"ProfilerStep#{step}", "gpu_user_annotation", 0, 7, us(100, n), dur=500.0)
        event("X", "aten::add", "cpu_op", PYTHON, 1, us(10, n), dur=185.0, args={"Input Dims": [[16, 4096]]})
        for i, (kernel, name) in enumerate(zip(KERNELS, names, strict=True)):
            correlation = 100 * n + i
            event("X", "cudaLaunchKernel", "cuda_runtime", PYTHON, 1, us(kernel[5], n), dur=2.0, args={"cbid": 211})
            event("s", "ac2g", "ac2g", PYTHON, 1, us(kernel[5], n), id=correlation)
            args = {"stream": 7, "correlation": correlation, "grid": [1, 2, 3]}
            event("X", name, "kernel", 0, 7, us(kernel[3], n), dur=kernel[4], args=args)
            event("f", "ac2g", "ac2g", 0, 7, us(kernel[3], n), id=correlation, bp="e")
        nccl = {"Collective name": "allreduce", "Process Group Name": "0", "dtype": "BFloat16"}
        event(
            "X",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "kernel",
            0,
            9,
            us(250, n),
            dur=150.0,
            args=nccl,
        )
        event("X", "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", 0, 7, us(600, n), dur=20.0, args={"bytes": 4})
    head = f'{{"schemaVersion": 1, "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": 2}},\n'
    tail = '\n  ], "traceName": "a.json", "more": [{"a": 1},{"b": 2}]}\n'
    return head + '  "traceEvents": [\n' + ",\n  ".join(lines) + tail


def pytorch(path: Path, **more: Any) -> Path:
    """`pytorch_text` as a file, packed where its name ends so."""
    data = pytorch_text(**more).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def texts_of(capture: Any, rows: Iterable[int], column: str = "name") -> list[str]:
    """The texts of some rows."""
    return [capture.text(int(row), column) for row in rows]


def one(path: Path) -> Capture:
    """The only capture below the path."""
    [capture] = read_captures(path).captures
    return capture
