"""Timelines as files that other tools open: Chrome traces out and in, and torch_npu's tables.

Lanes, arrows, argument and column names are those of torch_npu's profiler, so that habits and tools carry over.
"""

from scenarios.trace.layout import KernelArgs, insight_name_ok
from scenarios.trace.read import MAX_TRACE_BYTES, TraceError, read_trace
from scenarios.trace.tables import kernel_details_csv, step_trace_time_csv
from scenarios.trace.write import trace_events, trace_text, write_trace

__all__ = [
    "MAX_TRACE_BYTES",
    "KernelArgs",
    "TraceError",
    "insight_name_ok",
    "kernel_details_csv",
    "read_trace",
    "step_trace_time_csv",
    "trace_events",
    "trace_text",
    "write_trace",
]
