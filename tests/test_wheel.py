"""A user's first minute: the wheel, alone in a clean environment, works from any folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("wheel")]

SHIPPED = ["sim", "device", "scenarios", "cli.py", "app.py", "app_pages"]
CORE_DEPENDENCIES = {"simpy", "numpy", "pydantic", "pyyaml", "typer", "rich", "msgspec", "ijson"}


def run(*command: str | Path, cwd: Path = Path("/")) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed, without the PYTHON* variables of the tests."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build/ left in the tree would bring back files that were deleted since."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in [*SHIPPED, "pyproject.toml", "README.md", "LICENSE"]:
        entry = root / name
        if entry.is_dir():
            shutil.copytree(entry, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif entry.exists():
            shutil.copy(entry, source / name)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin/ of a new environment that holds the wheel and what the wheel asks for."""
    venv = tmp_path_factory.mktemp("clean") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    run(sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", wheel)
    return venv / "bin"


def test_wheel_holds_every_file_of_the_packages_and_no_other(wheel: Path, root: Path) -> None:
    source = {
        file.relative_to(root).as_posix()
        for entry in (root / name for name in SHIPPED)
        for file in ([entry] if entry.is_file() else entry.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith(".")
    }
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert shipped == source
    assert {"sim/py.typed", "scenarios/py.typed", "scenarios/qwen3_8b_decode.yaml"} <= shipped


def test_wheel_holds_no_tools_of_maintainers(wheel: Path) -> None:
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in shipped} == set(SHIPPED)
    assert not [
        name for name in shipped if re.search(r"table(s?|_zh)\.py$|checksums\.py$", name) and "accuracy" in name
    ]


def test_wheel_asks_for_the_core_dependencies_only(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    fields = message_from_bytes(archive.read(metadata))
    core = [need for need in fields.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert {re.split(r"[^A-Za-z0-9_.-]", need)[0].lower() for need in core} == CORE_DEPENDENCIES
    assert (fields["Name"], fields["License-Expression"]) == ("ascend-whatif", "Apache-2.0")
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist())


def test_installed_command_helps_and_lists_from_the_root_folder(clean_bin: Path) -> None:
    helped = run(clean_bin / "whatif", "--help").stdout
    for command in ("run", "compare", "explain", "list", "app", "schema"):
        assert re.search(rf"\b{command}\b", helped), f"--help does not name {command}"
    assert "qwen3_8b_decode" in run(clean_bin / "whatif", "list").stdout


def test_installed_command_predicts_its_own_scenario_from_the_root_folder(clean_bin: Path, tmp_path: Path) -> None:
    where = run(clean_bin / "python", "-c", "import scenarios; print(scenarios.__path__[0])").stdout.strip()
    assert Path(where).is_relative_to(clean_bin.parent)
    answer = tmp_path / "answer.json"
    run(clean_bin / "whatif", "run", f"{where}/qwen3_8b_decode.yaml", "--json", answer)
    assert json.loads(answer.read_text(encoding="utf-8"))["step"]["total_us"] > 0


def test_installed_command_says_what_the_lab_needs(clean_bin: Path) -> None:
    command = [str(clean_bin / "whatif"), "app"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "app: streamlit is not installed; pip install 'ascend-whatif[app]'\n"


def test_installed_lab_finds_its_pages(clean_bin: Path) -> None:
    code = "from app_pages.parts import server as s; print(s.SCRIPT.is_file(), dict(s.FLAGS)['theme.base'])"
    shown, theme = run(clean_bin / "python", "-c", code).stdout.split()
    assert shown == "True"
    assert Path(theme).is_file()
