"""`whatif doctor`: every check on machines made of files, where all is there and where one thing is missing."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from device.doctor import BACKENDS, examined
from device.doctor.checks import Trial
from device.doctor.cuda_trials import TRIALS as CUDA_TRIALS
from device.doctor.machine import Machine
from device.doctor.npu import checks
from device.doctor.npu_trials import TRIALS as NPU_TRIALS
from scenarios.build import problems_of
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.lowering.parallel import shard_of
from scenarios.models.hf_config import load_model

HOME = "/usr/local/Ascend/ascend-toolkit/latest"
FILES = {
    "/usr/local/Ascend/driver/version.info": "Version=25.5.1\nascendhal_version=7.35.23\n",
    "/usr/local/Ascend/firmware/version.info": "Version=7.8.0.5.220\n",
    "/dev/davinci0": "",
    "/dev/davinci1": "",
    "/dev/davinci_manager": "",
    f"{HOME}/version.cfg": "# version: 1.0\nruntime_running_version=[9.1.0]\n",
    f"{HOME}/lib64/libhccl.so": "",
    "/bin/npu-smi": "",
}


@dataclass(frozen=True, slots=True)
class Made(Machine):
    """A machine of files, with packages and an answer to the look for devices that a test gives."""

    packages: dict[str, str] = field(default_factory=dict)
    answer: tuple[bool, str] = (True, "2 devices")

    def package(self, name: str) -> str | None:
        return self.packages.get(name)

    def python(self, code: str) -> tuple[bool, str]:
        return self.answer


PACKAGES = {"torch": "2.10.0+cpu", "torch-npu": "2.10.0.post4"}
PACKAGES_2_8 = {"torch": "2.8.0", "torch-npu": "2.8.0"}


def cann(version: str) -> dict[str, str]:
    return {f"{HOME}/version.cfg": f"# version: 1.0\nruntime_running_version=[{version}]\n"}


Maker = Callable[..., Made]


@pytest.fixture
def machine(tmp_path: Path) -> Maker:
    def make(
        without: str = "",
        files: dict[str, str] | None = None,
        packages: dict[str, str] | None = None,
        answer: tuple[bool, str] = (True, "2 devices"),
        home: str = HOME,
    ) -> Made:
        for name, text in {**FILES, **(files or {})}.items():
            if without and name.startswith(without):
                continue
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        environment = {"PATH": str(tmp_path / "bin"), **({"ASCEND_HOME_PATH": home} if home else {})}
        return Made(tmp_path, environment, PACKAGES if packages is None else packages, answer)

    return make


def test_a_whole_machine_passes(machine: Maker) -> None:
    text, passed = examined("npu", machine())
    assert passed
    assert text.startswith("doctor npu: 9 of 9 checks passed\n")
    lines = text.splitlines()
    for line in (
        ("driver", "25.5.1, firmware 7.8.0.5.220"),
        ("devices", "2 in /dev"),
        ("CANN", f"9.1.0 in {HOME}"),
        ("HCCL", "libhccl.so"),
    ):
        assert any(all(word in item for word in line) for item in lines)
    assert (
        "torch_npu 2.10.0.post4 is documented with CANN 9.1.0; the release notes of CANN 9.1.0 name its driver" in text
    )


MISSING = {
    "driver": ({"without": "/usr/local/Ascend/driver"}, "driver", "install the Ascend HDK driver"),
    "old driver": (
        {"files": {"/usr/local/Ascend/driver/version.info": "Version=24.1.0"}}, "driver", "captured graphs run out"),
    "devices": ({"without": "/dev"}, "devices", "pass the NPUs into this container"),
    "npu-smi": ({"without": "/bin"}, "npu-smi", "not on PATH"),
    "CANN not sourced": ({"home": ""}, "CANN", "ASCEND_HOME_PATH is not set"),
    "CANN gone": ({"home": "/opt/nowhere"}, "CANN", "/opt/nowhere, which is no folder"),
    "CANN without version": ({"without": f"{HOME}/version"}, "CANN", "names no version"),
    "torch": ({"packages": {"torch-npu": "2.10.0.post4"}}, "torch", "not installed"),
    "torch_npu": (
        {"packages": {"torch": "2.10.0"}}, "torch_npu",
        "not installed; in a checkout of this project, for CANN 9.1.0: pip install . safetensors torch==2.10.0 "
        "torch-npu==2.10.0.post4"),
    "torch_npu without CANN": (
        {"packages": {"torch": "2.10.0"}, "home": ""}, "torch_npu",
        "not installed; in a checkout of this project, pip install '.[npu]', or what docs/npu.md names"),
    "a torch_npu for a newer CANN": (
        {"files": cann("8.5.0")}, "versions",
        "torch_npu 2.10.0.post4 is documented with CANN 9.1.0, here is 8.5.0; in a checkout of this project: pip "
        "install . safetensors torch==2.9.0 torch-npu==2.9.0"),
    "a torch_npu of no documented CANN": (
        {"files": cann("8.3.RC2"), "packages": {"torch": "2.13.0", "torch-npu": "2.13.0"}}, "versions",
        "documented with no CANN, here is 8.3.RC2; in a checkout of this project: pip install . safetensors "
        "torch==2.8.0 torch-npu==2.8.0"),
    "a CANN older than all": (
        {"files": cann("8.2.RC1"), "packages": PACKAGES_2_8}, "versions",
        "here is 8.2.RC1; install CANN 8.3.RC1 or newer"),
    "another torch": (
        {"packages": {**PACKAGES, "torch": "2.13.0"}}, "torch_npu",
        "torch_npu 2.10.0.post4 wants torch 2.10.0, installed is 2.13.0; pip install torch==2.10.0"),
    "no device seen": ({"answer": (False, "AssertionError")}, "torch sees them", "see npu-smi info"),
    "CANN not loaded": (
        {"answer": (False, "ImportError: libhccl.so: cannot open shared object file")}, "torch sees them",
        "CANN is not found"),
    "HCCL": ({"without": f"{HOME}/lib64"}, "HCCL", "no libhccl.so"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSING)
def test_what_is_missing_is_said_in_one_line_with_what_to_do(machine: Maker, case: str) -> None:
    settings, name, wanted = MISSING[case]
    result = machine(**settings)
    outcome = next(check for check in checks(result) if check.name == name)
    assert not outcome.passed
    assert wanted in outcome.says
    text, passed = examined("npu", result)
    assert not passed
    assert sum(line.startswith("  MISSING") for line in text.splitlines()) == sum(not c.passed for c in checks(result))


def test_a_version_that_no_adapter_was_written_for_is_named(machine: Maker) -> None:
    result = machine(packages={"torch": "2.9.1", "torch-npu": "2.9.1"})
    assert "not one of the versions that the adapters are held against" in examined("npu", result)[0]


def test_a_stack_that_is_documented_together_passes(machine: Maker) -> None:
    text, passed = examined("npu", machine(files=cann("8.3.RC2"), packages=PACKAGES_2_8))
    assert passed
    assert "torch_npu 2.8.0 is documented with CANN 8.3.RC1" in text
    assert "ATB              not sourced, so keys and values are written by two calls" in text


def test_an_older_torch_npu_in_a_newer_cann_passes_and_names_the_documented_pair(machine: Maker) -> None:
    result = machine(files=cann("8.5.0"), packages=PACKAGES_2_8)
    (line,) = [check for check in checks(result) if check.name == "versions"]
    assert line.passed
    assert line.says == (
        "torch_npu 2.8.0 is documented with CANN 8.3.RC1, here is 8.5.0, which is not older (in a checkout of this "
        "project: pip install . safetensors torch==2.8.0 torch-npu==2.8.0.post2 is the documented pair); driver 25.5.1 "
        "is not older than 25.5, which goes with it"
    )


def test_a_driver_that_is_older_than_its_cann_is_named(machine: Maker) -> None:
    old = {"/usr/local/Ascend/driver/version.info": "Version=25.2.0\n"}
    result = machine(files={**cann("8.5.0"), **old}, packages={"torch": "2.9.0", "torch-npu": "2.9.0"})
    says = {check.name: check.says for check in checks(result) if not check.passed}
    assert says["versions"] == "driver 25.2.0 is older than 25.5, which goes with CANN 8.5.0; install that"
    assert says["driver"].startswith("25.2.0; captured graphs run out of streams")


def test_an_import_that_never_ends_or_kills_its_process_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device.doctor.machine.PATIENCE_S", 0.5)
    assert Machine().python("import time; time.sleep(30)") == (False, "no answer within 0.5 s")
    monkeypatch.undo()
    assert Machine().python("import os; os.abort()") == (False, "ended with status -6")
    assert Machine().python("raise ValueError('two\\nlines')") == (False, "lines")
    assert Machine().python("print(1); print(2)") == (True, "2")


def test_cpu_and_cuda_are_examined_too(machine: Maker) -> None:
    assert examined("cpu", machine())[1]
    assert not examined("cuda", machine())[1]
    gpu = {"/proc/driver/nvidia/version": "NVRM version: 570.1\nGCC", "/dev/nvidia0": ""}
    text, passed = examined("cuda", machine(files=gpu))
    assert passed
    assert text.startswith("doctor cuda: 9 of 9 checks passed\n")
    assert "NVRM version: 570.1\n" in text
    assert "pytest -m cuda" in text
    lines = examined("cuda", machine(files=gpu, answer=(False, "AssertionError")))[0].splitlines()
    assert sum(line.startswith("  MISSING") for line in lines) == 6
    assert any("built without CUDA; install a build for it" in line for line in lines)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"'npus' cannot be examined; one of cpu, cuda, npu\. Did you mean 'npu'"):
        examined("npus")


@pytest.mark.parametrize("trial", [*NPU_TRIALS, *CUDA_TRIALS], ids=lambda trial: trial.command)
def test_a_trial_is_ready_to_run(trial: Trial) -> None:
    """Its scenario ships, its switches exist, and the model can have them."""
    words = shlex.split(trial.command)
    if not {"run", "device.doctor.errors"} & set(words):
        assert words in (
            ["python", "-m", "device.measure.numerics", "npu"],
            ["python", "-m", "device.measure.numerics", "cuda"],
            ["pytest", "-m", "cuda", "-rs", "tests/device", "tests/cli"],
        )
        return
    name = words[words.index("run") + 1 if "run" in words else words.index("device.doctor.errors") + 2]
    sets = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    scenario = load_scenario(name, sets).scenario
    engine, model = scenario.engine, load_model(scenario.model)
    part = shard_of(engine, model, engine.tensor_parallel_size, engine.data_parallel_size)
    assert not problems_of(scenario, part)
    options = {"--backend", "--set", "--json", "--trace", "--profile", "--nproc-per-node"}
    assert {w for w in words if w.startswith("--")} <= options
    assert trial.expected
    assert "next_ids" not in trial.expected  # tokens of random weights are near choices; errors say more


def test_every_backend_has_a_doctor() -> None:
    from device.backends import BACKENDS as DEVICES

    assert set(DEVICES) <= set(BACKENDS)
