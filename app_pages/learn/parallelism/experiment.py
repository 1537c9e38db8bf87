"""Lesson: what DP, TP, PP, SP and EP split, side by side on as many cards."""

from __future__ import annotations

from dataclasses import dataclass

from app_pages.learn.cases import case, why
from scenarios.errors import ScenarioError
from sim.predict.predict import predict
from sim.predict.ratios import step_ratio
from sim.predict.steps import Case

#: Settings of each way to use `{n}` cards; requests are per replica, so DP takes its share of them.
WAYS = {
    "DP": ("engine.data_parallel_size={n}",),
    "TP": ("engine.tensor_parallel_size={n}",),
    "TP+SP": ("engine.tensor_parallel_size={n}", "engine.sequence_parallel=true"),
    "PP": ("engine.pipeline_parallel_size={n}",),
    "EP": ("engine.tensor_parallel_size={n}", "engine.enable_expert_parallel=true"),
}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to use the cards, or why it is refused. Times in ms, of a decode step and of a prompt; throughput of all
    cards in tokens/s; bytes of one card. bubble_share: of a pipeline stage's step."""

    name: str
    refused: str = ""
    tpot_ms: float = 0.0
    tpot_low_ms: float = 0.0
    tpot_high_ms: float = 0.0
    ttft_ms: float = 0.0
    output_throughput: float = 0.0
    throughput_low: float = 0.0
    throughput_high: float = 0.0
    communication_ms: float = 0.0
    wait_ms: float = 0.0
    bubble_share: float = 0.0
    weights_bytes: int = 0
    kv_bytes: int = 0
    total_bytes: int = 0
    usable_bytes: int = 0
    case: Case | None = None


def ways(model: str, hardware: str, cards: int, requests: int, input_tokens: int, output_tokens: int) -> list[Way]:
    """Every way for `requests` requests in all. `requests` must be a multiple of `cards`: ValueError else."""
    if requests % cards:
        raise ValueError(f"{requests} requests do not divide over {cards} cards")
    return [
        way(
            name=name,
            model=model,
            hardware=hardware,
            cards=cards,
            requests=requests,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        for name in WAYS
    ]


def way(name: str, model: str, hardware: str, cards: int, requests: int, input_tokens: int, output_tokens: int) -> Way:
    """One of WAYS; refused ones say why."""
    batch = requests // cards if name == "DP" else requests
    try:
        deployment = case(
            f"model={model}",
            f"hardware={hardware}",
            f"workload.batch={batch}",
            f"workload.input_tokens={input_tokens}",
            f"workload.output_tokens={output_tokens}",
            "optimizations.graph=aclgraph",
            *(text.format(n=cards) for text in WAYS[name]),
        )
        prediction = predict(deployment)
    except ScenarioError as error:
        return Way(name, refused=why(error))
    tpot, throughput = (prediction.metrics[key] for key in ("tpot_ms", "output_throughput"))
    memory = prediction.memory
    return Way(
        name=name,
        tpot_ms=tpot.value,
        tpot_low_ms=tpot.low,
        tpot_high_ms=tpot.high,
        ttft_ms=prediction.metrics["ttft_ms"].value,
        output_throughput=throughput.value,
        throughput_low=throughput.low,
        throughput_high=throughput.high,
        communication_ms=prediction.step.communication_ns / 1e6,
        wait_ms=prediction.step.communication_wait_ns / 1e6,
        bubble_share=prediction.pipeline.round.share if prediction.pipeline else 0.0,
        weights_bytes=memory.weights,
        kv_bytes=memory.kv_cache,
        total_bytes=memory.total,
        usable_bytes=memory.usable,
        case=deployment,
    )


def ties(best: Way, ways: list[Way]) -> list[Way]:
    """The other possible ways whose step cannot be distinguished from that of `best`: the interval of the ratio
    holds 1."""
    assert best.case is not None
    others = [way for way in ways if way.case is not None and way is not best]
    return [way for way in others if way.case is not None and not step_ratio(way.case, best.case).distinguishable]


def as_much(best: Way, ways: list[Way]) -> list[Way]:
    """The other possible ways whose throughput's interval overlaps with that of `best`."""
    others = [way for way in ways if not way.refused and way is not best]
    return [way for way in others if way.throughput_high >= best.throughput_low]
