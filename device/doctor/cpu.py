"""The CPU: torch, and a C++ compiler for the kernels that torch has not."""

from __future__ import annotations

from device.doctor.checks import CHECKOUT, MAX_ERROR, Check, Trial, missing, present, probed
from device.doctor.machine import Machine

#: What an experiment tries of a CPU here: what compiles nothing, so that each fits the time.
FACTORS = "fusion.rms_norm,fusion.qkv,fusion.attention,kv.layout=paged,weights=w8a8"

TRIALS: tuple[Trial, ...] = (
    Trial(
        "Numbers: a small model against the reference operators",
        "python -m device.doctor.errors cpu tiny_llama_cpu",
        f"relative error within {MAX_ERROR:g}",
        seconds=10,
    ),
    Trial(
        "Predicted beside measured on this CPU, with a profile",
        "whatif run tiny_llama_cpu --backend cpu --json cpu_decode.json --profile cpu_profile",
        "a table of ops with both times; the CPU's profile is assumed, so that they differ is no fault",
        seconds=30,
    ),
    Trial(
        "A prefill on this CPU",
        "whatif run tiny_llama_cpu --backend cpu --set workload.phase=prefill --json cpu_prefill.json",
        "the same of a prefill",
        seconds=30,
    ),
    Trial(
        "What each optimisation gains here",
        f"whatif experiment tiny_llama_cpu --backend cpu --factors {FACTORS} --budget-s 120 --json cpu_experiment.json",
        "a verdict for each of five factors that compile nothing",
        seconds=120,
    ),
)


def torch_of(machine: Machine) -> Check:
    version = machine.package("torch")
    if version is None:
        return missing("torch", f"not installed; {CHECKOUT}: pip install '.[device]'")
    return present("torch", version)


def checks(machine: Machine) -> list[Check]:
    first = [torch_of(machine)]
    probes = (
        ("imports", "import torch; print('torch computes', torch.ones(2).sum().item())", "reinstall torch"),
        (
            "compiler",
            "from device.backends.cpu import compiler; c = compiler(); print(c); assert c",
            "no C++ compiler with Python's headers: add_rms_norm, rope, swiglu and graphs are refused; install g++ and "
            "python3-dev",
        ),
        (
            "gloo",
            "import torch.distributed as d; assert d.is_gloo_available(); print('ranks on one machine')",
            "this torch has no gloo: one rank only",
        ),
    )
    return [*first, *probed(machine, probes)]
