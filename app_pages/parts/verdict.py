"""The bottleneck of a step in one sentence, in the reader's language, from the numbers of its document."""

from __future__ import annotations

from typing import Any

from app_pages.parts.formats import number, percent, whole
from app_pages.parts.texts import Language, speaker
from app_pages.parts.texts.verdicts import EVIDENCE_ZH, GPU_ZH, PARTS, TEXTS
from sim.predict.device_terms import spoken


def verdict(result: dict[str, Any], language: Language) -> tuple[str, str]:
    """(the bottleneck by name, its evidence)."""
    bottleneck, device = result["bottleneck"], result.get("device", "npu")
    lead = _in_terms(speaker(TEXTS, language)(bottleneck["name"]), device, language)
    if language == "en":
        evidence = bottleneck["evidence"]
        return lead, f"{evidence[0].upper()}{evidence[1:]}."
    return lead, _in_terms(EVIDENCE_ZH[bottleneck["name"]].format(**_facts(result)), device, language)


def in_parts(bottleneck: dict[str, Any], language: Language, device: str = "npu") -> str:
    """The parts of the step of a percent and more, the largest first."""
    say = speaker(PARTS, language)
    shares = bottleneck["shares"].items()
    said = " · ".join(f"{say(part)} {percent(share)}" for part, share in shares if share >= 0.01)
    return _in_terms(said, device, language)


def _in_terms(text: str, device: str, language: Language) -> str:
    """What the model says of an NPU, in the words of a kind of device, as the terminal does."""
    if device != "cuda":
        return text
    for npu, gpu in GPU_ZH if language == "zh" else ():
        text = text.replace(npu, gpu)
    said = spoken(f"{text[0].lower()}{text[1:]}", device)
    return f"{said[0].upper()}{said[1:]}" if text[0].isupper() else said


def _facts(result: dict[str, Any]) -> dict[str, str]:
    step, busy, limits = result["step"], result["busy"], result["bottleneck"]["limits_us"]
    total, top = step["total_us"], result["kernels"][0]
    small = [row for row in result["kernels"] if row["bound"] in ("launch", "vector", "l2", "ai_cpu")]
    calls = sum(row["count"] for row in small)
    pipeline = result["pipeline"] or {"stages": [], "micro_batches": 0, "bubble_share": 0.0}
    return {
        "total_ms": number(total / 1000),
        "free_ms": number(step["free_us"] / 1000),
        "free_share": percent(step["free_us"] / total),
        "computing_ms": number(step["computing_us"] / 1000),
        "host_ms": number(busy["python_thread"] * total / 1000),
        "launches": whole(result["launches"]),
        "share": percent(limits.get(result["bottleneck"]["name"], 0.0) / (sum(limits.values()) or 1.0)),
        "hbm_gb": number(result["hbm_bytes"] / 1e9),
        "hbm_busy": percent(busy["hbm"]),
        "top": top["op_type"],
        "top_tflops": number(top["tflops"]),
        "small": whole(calls),
        "small_us": number(sum(row["total_us"] for row in small) / max(1, calls)),
        "comm_share": percent(step["communication_not_overlapped_us"] / total),
        "comm_ms": number(step["communication_not_overlapped_us"] / 1000),
        "wait_ms": number(step["communication_wait_us"] / 1000),
        "stages": str(len(pipeline["stages"])),
        "micro_batches": str(pipeline["micro_batches"]),
        "bubble_share": percent(pipeline["bubble_share"]),
    }
