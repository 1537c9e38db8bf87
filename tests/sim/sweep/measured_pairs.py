"""The 57 public before/after pairs of ../shared/measured/pairs.csv: which can be said as two scenarios, and as which.

What the source leaves open is assumed and said. No number of a profile was fitted to any of them; `seen` says where a
rule was written, or a scenario chosen, with the pair in view. `measured`: how many times better the second side was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scenarios.loader import Loaded, load_text
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of
from sim.serving.result import serve_scenario
from sim.sweep.robust import preferred

A2, A3 = "atlas_a2_910b2", "atlas_a3_die"


@dataclass(frozen=True)
class Stated:
    """Two scenarios. by: what the side is chosen by: the step (near ties by the loaded host), or a mean of requests
    served. assumed: what the source does not state. seen: what was written with this pair in view."""

    both: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    measured: float
    assumed: str
    chip: str = A2
    by: Literal["step", "tpot_ms", "ttft_ms"] = "step"
    seen: str = ""

    def loads(self) -> list[Loaded]:
        """The scenarios of both sides."""
        return [
            load_text("{}", "pair", (f"hardware={self.chip}", *self.both, *side)) for side in (self.before, self.after)
        ]

    def predicted(self) -> tuple[float, bool]:
        """(how many times better the second side is, whether it is the one that is chosen)."""
        cases = [case_of(loaded) for loaded in self.loads()]
        if self.by == "step":
            metric = "ttft_ms" if cases[0].scenario.workload.phase == "prefill" else "tpot_ms"
            was, became = (predict(case).metrics[metric].value for case in cases)
            return was / became, preferred(cases) == 1
        served = [serve_scenario(loaded, case).metrics for loaded, case in zip(self.loads(), cases, strict=True)]
        was, became = (getattr(metrics, self.by).mean for metrics in served)
        return was / became, became < was

    def regret(self, chosen_after: bool) -> float:
        """By what share the chosen side was measured worse than the other."""
        return max(0.0, 1 / self.measured - 1) if chosen_after else max(0.0, self.measured - 1)


EAGER, CAPTURED = ("optimizations.graph=eager",), ("optimizations.graph=aclgraph",)
SHORT = ("workload.input_tokens=100", "workload.output_tokens=200")
DRAFTS = "engine.speculative_config={{method: {}, num_speculative_tokens: {}, acceptance: {}}}"
R1 = ("model=DeepSeek-R1", "optimizations.weights=w8a8", "engine.enable_expert_parallel=true")
R1_32 = (
    *R1, *CAPTURED, "engine.data_parallel_size=32", "workload.batch=24", "engine.max_num_seqs=24",
    "workload.input_tokens=2048", "workload.output_tokens=512",
)  # fmt: skip
R1_256 = (*R1, *CAPTURED, "engine.data_parallel_size=256", "workload.input_tokens=2048", "workload.output_tokens=512")
TWO = ("optimizations.overlap.micro_batches=2",)
SERVED_MOE = (
    *CAPTURED, "engine.data_parallel_size=2", "engine.tensor_parallel_size=2", "engine.enable_expert_parallel=true",
    "workload.input_tokens=4096", "workload.output_tokens=2048", "engine.max_model_len=8192",
    "workload.traffic={arrival: closed, concurrency: 32, requests: 96, warmup_requests: 32}",
)  # fmt: skip
FLASHCOMM = (("engine.sequence_parallel=false",), ("engine.sequence_parallel=true",))
KV_POOL = (
    "model=Qwen3-14B", *CAPTURED, "optimizations.kv.prefix_sharing=true", "engine.gpu_memory_utilization=0.56",
    "engine.profile=healthy", "workload.input_tokens=256", "workload.output_tokens=128", "engine.max_model_len=20000",
    "workload.traffic={arrival: closed, concurrency: 16, requests: 96, turns: 6}",
)  # fmt: skip
QWEN3_8B = ("model=Qwen3-8B",)
#: Predicted in docs/plan.md, with its result next to it, while the model still changed; no rule was written for it.
BEFORE = "its prediction stood here before"

STATED: dict[str, Stated] = {
    "1": Stated(
        (*QWEN3_8B, "workload.batch=128", "workload.input_tokens=512", "workload.output_tokens=256"),
        EAGER, CAPTURED, 2454 / 1517, "lengths, chip", seen="the rule of the loaded host",
    ),
    "3": Stated(
        ("model=DeepSeek-V4-Flash", "optimizations.weights=w8a8", "engine.data_parallel_size=2",
         "engine.tensor_parallel_size=8", "engine.enable_expert_parallel=true", "workload.batch=16",
         "workload.input_tokens=17500", "workload.output_tokens=128"),
        EAGER, CAPTURED, 138.7 / 48.1, "without its MTP draft", chip="atlas_a2_910b3",
    ),
    "6": Stated(
        (*QWEN3_8B, "workload.batch=16", *SHORT, DRAFTS.format("eagle3", 8, 0.83)),
        EAGER, CAPTURED, 1554.08 / 1440.84, "batch, lengths, chip", seen=BEFORE,
    ),
    "7": Stated(
        (*QWEN3_8B, "workload.batch=16", *SHORT, DRAFTS.format("eagle3", 7, 0.95)),
        EAGER, CAPTURED, 1936.3 / 1270.07, "batch, lengths, chip", seen=BEFORE,
    ),
    "10": Stated(
        (*QWEN3_8B, "workload.batch=10", "workload.input_tokens=512", "workload.output_tokens=256", *CAPTURED,
         DRAFTS.format("ngram", 3, 0.5)),
        ("engine.cudagraph_capture_sizes=[16, 32]",), ("engine.cudagraph_capture_sizes=[16, 32, 40]",),
        48.94 / 25.17, "lengths, chip, acceptance", seen=BEFORE,
    ),
    "32": Stated(("model=Qwen3-30B-A3B", *SERVED_MOE), *FLASHCOMM, 25.49 / 24.72, "chip", by="tpot_ms"),
    "33": Stated(("model=Qwen3.5-35B-A3B", *SERVED_MOE), *FLASHCOMM, 28.89 / 27.42, "chip", by="tpot_ms"),
    "34": Stated(R1_32, (), ("engine.finegrained_tp_config.oproj_tensor_parallel_size=8",), 1 - 1.5 / 80, "lengths",
        seen=BEFORE),
    "35": Stated(R1_32, (), ("engine.finegrained_tp_config.lmhead_tensor_parallel_size=8",), 1 + 1.2 / 77, "lengths",
        seen=BEFORE),
    "36": Stated(R1_32, (), ("engine.finegrained_tp_config.mlp_tensor_parallel_size=8",), 1 + 1.0 / 77, "lengths"),
    "37": Stated(
        R1_32, (), ("engine.finegrained_tp_config.embedding_tensor_parallel_size=8",), 1 + 1.0 / 77, "lengths"
    ),
    "45": Stated((*R1_256, "workload.batch=64"), (), TWO, 1.058, "256 of 320 dies, lengths", chip=A3, seen=BEFORE),
    "46": Stated((*R1_256, "workload.batch=96"), (), TWO, 1.094, "256 of 320 dies, lengths", chip=A3, seen=BEFORE),
    "47": Stated((*R1_256, "workload.batch=128"), (), TWO, 1.069, "256 of 320 dies, lengths", chip=A3, seen=BEFORE),
    "48": Stated(
        (*R1, "workload.phase=prefill", "workload.batch=4", "engine.data_parallel_size=32",
         "workload.input_tokens=4096", "engine.max_num_batched_tokens=16384"),
        (), TWO, 1.27, "dies, lengths (measured: 23 to 31 %)", chip=A3,
    ),
    "49": Stated(
        (*R1, *CAPTURED, "engine.data_parallel_size=32", "workload.batch=32", "workload.input_tokens=1024",
         "workload.output_tokens=512"),
        (), (DRAFTS.format("mtp", 1, 0.7),), 1.06, "batch, dies, lengths (measured: 6 to 49 %)", chip=A3, seen=BEFORE,
    ),
    "63": Stated(
        KV_POOL, (), ("engine.kv_pool={capacity_gib: 64.0}",), 608.23 / 347.72, "turns, lengths, chip, engine",
        chip="atlas_a2_910b3", by="ttft_ms", seen="turns and lengths were chosen so that conversations do not fit",
    ),
}  # fmt: skip

#: Why the others cannot be.
NOT_STATED: dict[str, tuple[str, ...]] = {
    "changes host code, a log level or one kernel's own code, which no scenario has": (
        "8", "9", "12", "13", "14", "15", "16", "17", "18", "19", "20", "22", "23", "24", "25", "43", "44",
    ),
    "one number, with nothing before it or after it": ("51", "52", "53", "54", "55", "56", "57", "62"),
    "context parallelism of sparse attention is not modelled": ("38", "39", "40", "41", "42"),
    "how much of the prompts hits is not stated as lengths, or the store is another one": ("4", "50", "59", "60", "61"),
    "the routing (hottest expert 30 times the mean) is that deployment's own": ("58",),
    "the model is not stated": ("11",),
    "the chip (950) is not shipped": ("66", "67"),
    "another store of the pair that is stated (63)": ("64",),
}  # fmt: skip
