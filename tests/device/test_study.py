"""The study on a CPU, in seconds: its parts fit together, and its numbers are of the right order.

No bound is tight: the machine may be busy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from device.backends import choose
from device.microbench import bench
from device.microbench.plan import trials
from sim.fitting.profile_file import ready, write_profile

pytestmark = [pytest.mark.cpu, pytest.mark.slow, pytest.mark.xdist_group("torch")]

#: Trials of which the profile is made: how their names start, and how many of them.
WANTED = (("decode fused", 6), ("prefill fused", 3), ("decode plain", 2), ("decode w8a8", 3), ("prefill w8a8", 1))
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "study"


@pytest.fixture(scope="module")
def study() -> Iterator[tuple[ModuleType, ModuleType, ModuleType, ModuleType]]:
    """The study's modules: its scripts lie next to each other and find each other by name."""
    sys.path.insert(0, str(FOLDER))
    try:
        import cases  # type: ignore[import-not-found]
        import cpu  # type: ignore[import-not-found]
        import page  # type: ignore[import-not-found]
        import results  # type: ignore[import-not-found]

        yield cases, cpu, page, results
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("cases", "cpu", "page", "results"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration from a few trials that compile nothing."""
    out = tmp_path_factory.mktemp("study") / "quick.yaml"
    rows, base = ready("cpu", out, "")
    plan = [t for t in trials() if t.model.hidden in (96, 192, 320)]
    few = [[t for t in plan if t.name.startswith(start)][:count] for start, count in WANTED]
    backend = choose("cpu")
    memory, _, *rest = bench.tasks_of(backend, tuple(trial for trials in few for trial in trials))
    once = [task for task in rest if not task.name.endswith(bench.AGAIN)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "tasks_of", lambda *_: (memory, *once))  # without collectives
        patch.setattr("device.microbench.ops.TRIAL_NS", 0)
        write_profile(out, bench.benched(backend, rows, 120, False, lambda _: None), base)
    return out


@pytest.mark.study
def test_a_small_study(study: tuple[ModuleType, ...], profile: Path) -> None:
    cases, cpu, page, results = study
    outcome, refused = cpu.studied(profile, cases.SMALL_BASES, cases.SMALL_VARIANTS, 1, lambda _: None, False, 0.3)
    assert not refused
    assert len(outcome) == 2 * 4  # all off, and with one of two optimisations on, of which one starts elsewhere
    for result in outcome.values():
        assert 1 / 3 < result.predicted_us / result.measured_us < 3
        low, high = result.interval_us
        assert low < result.predicted_us < high
    gains = results.gains_of(outcome, cases.SMALL_BASES, cases.SMALL_VARIANTS)
    told = results.summary(outcome, gains)
    assert (told["steps"], len(gains)) == (8, 4)
    assert told["median_error"] < 1
    text = page.markdown(outcome, gains, ["x: why"], cpu.about_of(1), "Said by nobody.")
    assert text.count("| 256 wide, 4 layers: ") == 8 + 4
    assert "Said by nobody." in text
    assert "- x: why" in text


def test_ranks_and_reversals_by_hand(study: tuple[ModuleType, ...]) -> None:
    cases, _, _, results = study
    assert results.spearman([(1.0, 2.0), (2.0, 4.0), (3.0, 9.0)]) == pytest.approx(1.0)
    assert results.spearman([(1.0, 9.0), (2.0, 4.0), (3.0, 2.0)]) == pytest.approx(-1.0)
    assert results.spearman([(1.0, 1.0), (2.0, 1.0)]) == 0.0
    base, (one, other) = cases.BASES[0], cases.VARIANTS[:2]
    better = results.Gain(base, one, (2.0, 1.8, 2.2), 1.1, 0.02)
    worse = results.Gain(base, other, (1.1, 1.0, 1.2), 1.6, 0.02)
    assert results.reversed_pairs([better, worse]) == [(better, worse)]
    unsure = results.Gain(base, other, (1.1, 0.7, 1.9), 1.6, 0.02)
    assert results.reversed_pairs([better, unsure]) == []  # the prediction does not claim to tell them apart
    elsewhere = results.Gain(cases.BASES[1], other, (1.1, 1.0, 1.2), 1.6, 0.02)
    assert results.reversed_pairs([better, elsewhere]) == []


def test_no_scenario_of_the_study_is_one_of_the_calibration(study: tuple[ModuleType, ...]) -> None:
    cases = study[0]
    sizes = {trial.model.hidden for trial in trials()}
    assert sizes.isdisjoint(size["hidden"] for size in cases.MODELS.values())
    wanted = list(cases.runs(cases.BASES, cases.VARIANTS, True))
    assert len(set(wanted)) == len(wanted) > 60
