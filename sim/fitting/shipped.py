"""Re-derive every fitted number of the shipped profiles from the reference measurements: `python -m
sim.fitting.shipped`.

`sim/fitting/` knows how to fit kernels, collectives, exchanges, hosts and rank skew; here stands what is fitted to
which rows, in which order, and into which profile it goes. Numbers that all profiles of a family share are fitted
first; later stages see them. `--write` puts the numbers into the shipped profiles, `--out` into copies in another
folder. scipy is needed (the extra `fit`).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path

import numpy as np

from scenarios.records import dataclass
from sim.fitting.collectives import calibrate as calibrate_links
from sim.fitting.exchange import calibrate as calibrate_exchange
from sim.fitting.host import fit_host
from sim.fitting.kernels import (
    Block,
    Report,
    Sample,
    fit,
    held_out,
    interval,
    program_name,
    read_samples,
    read_torchair,
)
from sim.fitting.ranks import fit_rank_skew
from sim.fitting.robust import family_sigmas
from sim.fitting.vector import FAMILY, Laws, VectorRow, fit_laws, law_numbers, laws_table, unseen, vector_rows
from sim.hardware.files import write_numbers
from sim.hardware.numbers import with_numbers
from sim.hardware.profile import SHIPPED, HardwareProfile, load_hardware, read_hardware


def _own(program: str, **effects: float) -> Block:
    return Block(program, {f"programs.{program}.{e}": start for e, start in effects.items()}, (program,))


#: Kernels on the cube cores: what all share, then each program on its own rows; a later block takes the earlier ones'
#: numbers as they are. The numbers are where a fit starts and what it is pulled to where its rows do not decide.
CUBE: tuple[Block, ...] = (
    Block(
        "matmul",
        {
            "programs.matmul.fixed_us": 4.3,
            "memory.hbm_gbps": 1500,
            "memory.nz_flat_share": 0.9,
            "memory.nd_odd_share": 0.8,
            "kernel.overlap_power": 1.2,
        },
        ("matmul",),
    ),
    _own("quant_matmul", fixed_us=11),
    _own("batch_matmul", fixed_us=7),
    _own("transpose_batch_matmul", fixed_us=11),
    _own("attention", fixed_us=17, row_us=0.6, element_ns=0.04),
    _own("mla_attention", fixed_us=10, row_us=0.7, element_ns=0.04),
    _own("static_attention", fixed_us=6, element_ns=0.01, combine_us=2),
)

#: Programs of which only vendor kernels that ran alone are known.
ALONE: tuple[Block, ...] = (_own("weight_quant_matmul", fixed_us=10, element_ns=0.05),)

#: The other architecture: what its vendor kernels alone decide.
ALONE_950: tuple[Block, ...] = (
    _own("quant_matmul", fixed_us=5),
    _own("weight_quant_matmul", fixed_us=5, element_ns=0.02),
    _own("grouped_matmul", fixed_us=4),
    _own("attention", fixed_us=8, row_us=0.3, element_ns=0.03),
    _own("mla_attention", fixed_us=8, row_us=0.3, element_ns=0.03),
    _own("attention_prefill", fixed_us=8, element_ns=0.04),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One step.

    Fit `blocks` on the rows of `hardware` and write into the profile `into`. use: which rows, as in `read_samples`.
    """

    into: str
    hardware: tuple[str, ...]
    blocks: tuple[Block, ...]
    use: str = "yes"


#: Profiles on whose rows the laws of vector kernels are fitted together.
VECTOR_HARDWARE = ("atlas_a3_die", "atlas_a2_910b2", "atlas_a3_die_20")

STAGES: tuple[Stage, ...] = (
    Stage("atlas_a2_910b2", ("atlas_a3_die", "atlas_a2_910b2", "atlas_a3_die_20"), CUBE),
    Stage("atlas_a2_910b2", ("atlas_a2_910b2",), (_own("attention_prefill", fixed_us=40, element_ns=0.08),)),
    Stage("atlas_a2_910b2", ("atlas_a2_910b2",), ALONE, "alone"),
    Stage("atlas_a3_die", ("atlas_a3_die",), (_own("attention_prefill", element_ns=0.04),)),
    Stage("atlas_a3_die_20", ("atlas_a3_die_20",), (Block("HBM", {"memory.hbm_gbps": 1600}, ("matmul",)),)),
    Stage("950pr", ("950pr",), ALONE_950, "alone"),
)


def calibrate(folder: Path, draws: int = 0, check: bool = True) -> list[tuple[Stage, Report]]:
    """Run all stages on the profiles in `folder`, which they change; the fitted numbers that stand there do not matter.

    draws: bootstrap draws for the intervals (0: none are written). check: also predict each shape by a fit that has not
    seen it.
    """
    done = []
    for stage in STAGES:
        starts = {name: value for block in stage.blocks for name, value in block.parameters.items()}
        write_numbers(folder / f"{stage.into}.yaml", starts, {})
    for stage in STAGES:
        # Not remembered: the files change under it.
        bases = {name: read_hardware(folder / f"{name}.yaml") for name in stage.hardware}
        samples = read_samples(hardware=stage.hardware, use=stage.use)
        for block in stage.blocks:  # once without reports: blocks lean on each other's numbers a little
            if rows := rows_of_block(block, samples, bases):
                values = fit(block, rows, bases)
                bases = {name: with_numbers(hw, values) for name, hw in bases.items()}
        reports = []
        for block in stage.blocks:
            if rows := rows_of_block(block, samples, bases):
                errors = held_out(block, rows, bases) if check else []
                spans = interval(block, rows, bases, draws) if draws else {}
                reports.append(Report(block, fit(block, rows, bases), spans, errors))
                bases = {name: with_numbers(hw, reports[-1].values) for name, hw in bases.items()}
        values = {name: value for report in reports for name, value in report.values.items()}
        spans = {name: span for report in reports for name, span in report.intervals.items()}
        if check and stage.into == "950pr":  # those of A2 and A3: sim.fitting.widths
            values.update(family_sigmas((sample.work.program, e) for r in reports for sample, e in r.errors))
        write_numbers(folder / f"{stage.into}.yaml", values, spans)
        done += [(stage, report) for report in reports]
    fit_vector(folder, check)  # at the rates of HBM that the products have
    base = folder / "atlas_a2_910b2.yaml"
    write_numbers(base, fit_host(read_hardware(base)), {})
    calibrate_links(folder, draws, check)
    calibrate_exchange(folder)
    write_numbers(base, fit_rank_skew(read_hardware(folder / "atlas_a3_die.yaml")), {})
    return done


def fit_vector(folder: Path, check: bool) -> dict[str, list[tuple[VectorRow, float]]]:
    """Fit the laws of vector kernels and write them into the profiles in `folder`, with `check` their residuals too.

    Returns (row, log error) of fits that have not seen the row's shape, by profile; none without `check`.
    """
    names = (*VECTOR_HARDWARE, "950pr")
    bases = {name: read_hardware(folder / f"{name}.yaml") for name in names}
    rows = two_stack_rows(bases)
    laws = fit_laws(rows)
    _write_laws(folder / "atlas_a2_910b2.yaml", laws, rows)
    own = vector_rows(read_samples(hardware=("950pr",), use="alone"), bases)
    priors = {kind: np.array(laws.kinds.get(kind, laws.families[FAMILY[kind]])) for kind in FAMILY}
    _write_laws(folder / "950pr.yaml", fit_laws(own, priors), own)
    errors: dict[str, list[tuple[VectorRow, float]]] = {}
    if check:
        errors = {"atlas_a2_910b2": unseen(rows, "shape"), "950pr": unseen(own, "shape", priors)}
        sigmas = family_sigmas((row.kind, e) for row, e in errors["950pr"])  # of A2 and A3: sim.fitting.widths
        write_numbers(folder / "950pr.yaml", sigmas, {})
    return errors


def _write_laws(path: Path, laws: Laws, rows: Sequence[VectorRow]) -> None:
    write_numbers(path, *law_numbers(laws, laws.spreads(rows)))


def two_stack_rows(bases: Mapping[str, HardwareProfile]) -> list[VectorRow]:
    """The rows of vector kernels on A2 and A3: networks under vLLM-Ascend and TorchAir, and vendor kernels alone."""
    samples = read_samples(hardware=VECTOR_HARDWARE) + read_torchair()
    return vector_rows(samples + read_samples(hardware=("atlas_a2_910b2",), use="alone"), bases)


def rows_of_block(block: Block, samples: Sequence[Sample], bases: dict[str, HardwareProfile]) -> list[Sample]:
    """The samples that one of the block's programs prices."""
    return [s for s in samples if program_name(s, bases[s.hardware]) in block.programs]


def roofline_us(sample: Sample, hw: HardwareProfile) -> float:
    """The plain roofline that a model must beat.

    Flops at 0.7 of peak, bytes at 0.6 of HBM's peak, plus 5 us (cube) or 2 us (vector).
    """
    work = sample.work
    peak = 0.7 * hw.chip.cube_flops_per_ns
    static = 2.0 if work.unit == "vector" else 5.0
    return max(work.cube_flops / peak, work.gm_bytes / (0.6 * hw.memory.hbm_peak_gbps)) / 1000 + static


def table(results: Sequence[tuple[Stage, Report]]) -> str:
    """Held-out errors by stage and block, with the plain roofline's on the same rows."""
    lines = [f"{'block':27} {'rows':>5} {'median':>7} {'P90':>7} {'roofline':>9}"]
    for stage in STAGES:
        lines.append(f"-- {', '.join(stage.hardware)} ({'in a network' if stage.use == 'yes' else 'alone'})")
        everything: list[tuple[float, float]] = []
        for report in (r for s, r in results if s is stage and r.errors):
            pairs = [
                (abs(exp(e) - 1), abs(roofline_us(s, load_hardware(s.hardware)) / s.us - 1)) for s, e in report.errors
            ]
            everything += pairs
            lines.append(_line(report.block.name, pairs))
        if everything:
            lines.append(_line("all", everything))
    return "\n".join(lines)


def _line(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    errors = sorted(e for e, _ in pairs)
    p90 = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    roof = statistics.median(r for _, r in pairs)
    return f"{name:27} {len(errors):5} {statistics.median(errors):7.1%} {p90:7.1%} {roof:9.1%}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--bootstrap", type=int, default=0, help="draws for the intervals (the shipped profiles took 100)"
    )
    parser.add_argument("--out", type=Path, help="write the calibrated profiles into this folder")
    parser.add_argument("--laws", action="store_true", help="only print how well the laws of vector kernels predict")
    parser.add_argument("--write", action="store_true", help="write them into the shipped profiles")
    options = parser.parse_args(arguments)
    if options.laws:
        print(laws_table(two_stack_rows({name: load_hardware(name) for name in VECTOR_HARDWARE})))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for path in SHIPPED.glob("*.yaml"):
            shutil.copy(path, folder)
        print(table(calibrate(folder, options.bootstrap)))
        if target := SHIPPED if options.write else options.out:
            target.mkdir(parents=True, exist_ok=True)
            for path in folder.glob("*.yaml"):
                shutil.copy(path, target)


if __name__ == "__main__":
    main()
