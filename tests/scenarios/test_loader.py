"""From a file on disk to a Scenario: all errors with their places, --set, and what only a whole file can get wrong."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import folder_of, located, problem, shipped_names
from scenarios.schema import Scenario
from tests.scenarios.loading import FILES, load, refused, write


def test_a_file_becomes_a_scenario() -> None:
    loaded = load(FILES / "base.yaml")
    assert loaded.name == "base"
    assert loaded.path == FILES / "base.yaml"
    assert loaded.scenario == Scenario.model_validate(
        {
            "description": "Qwen3-8B, one request, eager",
            "engine": {"max_num_seqs": 64, "max_model_len": 4096},
        }
    )
    assert loaded.scenario.workload.model_fields_set == {"batch", "input_tokens", "output_tokens"}


def test_every_mistake_of_a_file_at_once(folder: Path) -> None:
    write(folder, wrong=(FILES / "wrong.yaml").read_text(encoding="utf-8"))
    assert refused("wrong.yaml") == [
        "wrong.yaml:2:8: model: must be text, got 3. Put it in quotes",
        "wrong.yaml:3:1: graph: unknown key 'graph'. It belongs under 'optimizations'",
        "wrong.yaml:5:10: workload.batch: must be at least 1, got 0",
        "wrong.yaml:6:17: workload.input_tokens: must be a plain number of tokens, got '4k'. "
        "Write the number alone, without 'k'",
        "wrong.yaml:7:18: workload.output_tokens: must be a whole number of tokens, got the text '128'. "
        "Remove the quotes",
        "wrong.yaml:8:10: workload.phase: 'decod' is not one of decode, prefill, mixed. Did you mean 'decode'?",
        "wrong.yaml:9:3: workload.contxt_tokens: unknown key 'contxt_tokens'. Did you mean 'context_tokens'?",
        "wrong.yaml:11:3: engine.tensor_paralel_size: unknown key 'tensor_paralel_size'. "
        "Did you mean 'tensor_parallel_size'?",
        "wrong.yaml:12:27: engine.pipeline_parallel_size: must be a whole number, got 'two'",
        "wrong.yaml:13:17: engine.max_num_seqs: must be a whole number of requests, got 1000.0. Write 1000",
        "wrong.yaml:14:27: engine.max_num_batched_tokens: must be a whole number of tokens, got the text '1_000'. "
        "Write 1000",
        "wrong.yaml:15:27: engine.gpu_memory_utilization: must be a plain number, got '90%'. "
        "Write the number alone, without '%'",
        "wrong.yaml:16:32: engine.cudagraph_capture_sizes[1]: must be a whole number of requests, got 'x'",
        "wrong.yaml:16:35: engine.cudagraph_capture_sizes[2]: must be at least 1, got 0",
        "wrong.yaml:17:22: engine.task_queue_enable: must be a whole number, got true",
        "wrong.yaml:19:10: optimizations.graph: 'gegraph' is not one of eager, aclgraph, npugraph_ex, ge_graph. "
        "Did you mean 'ge_graph'?",
        "wrong.yaml:21:11: optimizations.fusion.rope: must be true or false, got 'yes'. Did you mean true?",
        "wrong.yaml:22:12: optimizations.fusion.swiglu: must be true or false, got nothing",
        "wrong.yaml:23:7: optimizations.kv: must be a mapping with keys such as layout, block_size, prefix_sharing, "
        "shared_prefix_tokens, got a list",
        "wrong.yaml:25:14: optimizations.overlap.streams: must be at most 2, got 9",
        "wrong.yaml:26:1: optimizations.weights: unknown key 'optimizations.weights'. "
        "Nest it: put 'weights' under 'optimizations'",
        "wrong.yaml:27:1: protocl: unknown key 'protocl'. Did you mean 'protocol'?",
        "wrong.yaml:28:1: extend: unknown key 'extend'. Did you mean 'extends'?",
        "wrong.yaml:29:1: zzz: unknown key 'zzz'. Known keys: description, model, hardware, workload, engine, "
        "optimizations, protocol, slo, extends",
        "wrong.yaml:30:1: batc: unknown key 'batc'. Did you mean 'batch'? It belongs under 'workload'",
    ]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("4k", "got '4k'. Write the number alone, without 'k'"),
        ("8 GB", "got '8 GB'. Write the number alone, without 'GB'"),
        ("1024 tokens", "got '1024 tokens'. Write the number alone, without 'tokens'"),
        ("14ms", "got '14ms'. Write the number alone, without 'ms'"),
    ],
)
@pytest.mark.parametrize(
    ("where", "unit"),
    [
        ("workload.batch", " of requests"),
        ("workload.input_tokens", " of tokens"),
        ("workload.context_tokens", " of tokens"),
        ("engine.max_model_len", " of tokens"),
        ("engine.max_num_seqs", " of requests"),
        ("optimizations.kv.block_size", " of tokens"),
        ("protocol.seed", ""),
    ],
)
def test_a_number_with_a_unit_is_told_the_unit_of_the_field(where: str, unit: str, value: str, what: str) -> None:
    setting = f"--set {where}={value}"
    assert refused(FILES / "base.yaml", f"{where}={value}") == [
        f"{setting}: {where}: must be a plain number{unit}, {what}"
    ]


# --set


def test_settings_lie_over_the_file_in_their_order() -> None:
    sets = (
        "workload.batch=4",
        "optimizations.fusion={rope: false, swiglu: false}",
        "optimizations.fusion.swiglu = true",
        "engine.cudagraph_capture_sizes=[1, 0x4]",
        "optimizations.graph=npugraph_ex",
        "engine.max_model_len=null",
        'description="4"',
        "model=models/a=b #1",
        "engine.gpu_memory_utilization=1",
    )
    scenario = load(FILES / "base.yaml", *sets).scenario
    assert (scenario.workload.batch, scenario.workload.input_tokens) == (4, 1024)
    assert (scenario.optimizations.fusion.rope, scenario.optimizations.fusion.swiglu) == (False, True)
    assert scenario.engine.cudagraph_capture_sizes == (1, 4)
    assert scenario.engine.max_model_len is None
    assert (scenario.description, scenario.model) == ("4", "models/a=b #1")
    assert scenario.engine.gpu_memory_utilization == 1.0


def test_settings_are_located_by_themselves() -> None:
    assert refused(
        FILES / "base.yaml",
        "workload.batch=0",
        "wrkload.batch=3",
        "batch=3",
        "optimizations.graph=gegraph",
        "optimizations.fusion.rope=on",
        "workload.batch.x=1",
        "engine.cudagraph_capture_sizes=[1, 0]",
    ) == [
        "--set wrkload.batch=3: wrkload: unknown key 'wrkload'. Did you mean 'workload'?",
        "--set batch=3: batch: unknown key 'batch'. It belongs under 'workload'",
        "--set optimizations.graph=gegraph: optimizations.graph: 'gegraph' is not one of eager, aclgraph, npugraph_ex, "
        "ge_graph. Did you mean 'ge_graph'?",
        "--set optimizations.fusion.rope=on: optimizations.fusion.rope: must be true or false, got 'on'. "
        "Did you mean true?",
        "--set workload.batch.x=1: workload.batch: must be a whole number of requests, got a mapping",
        "--set engine.cudagraph_capture_sizes=[1, 0]: engine.cudagraph_capture_sizes[1]: must be at least 1, got 0",
    ]
    assert refused(FILES / "base.yaml", "workload.batch=0") == [
        "--set workload.batch=0: workload.batch: must be at least 1, got 0"
    ]


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("workload.batch", "must be key=value with a dotted key, such as workload.batch=4"),
        ("", "must be key=value with a dotted key, such as workload.batch=4"),
        ("=3", "must be key=value with a dotted key, such as workload.batch=4"),
        ("workload..batch=3", "must be key=value with a dotted key, such as workload.batch=4"),
        ("workload.batch.=3", "must be key=value with a dotted key, such as workload.batch=4"),
        (".".join("a" * 33) + "=3", "nested deeper than 32 levels"),
        ("extends=base.yaml", "extends can only stand in a file"),
        ("model=a\0b", "control characters are not allowed"),
        ("model=\udcff", "control characters are not allowed"),
        ("workload.batch=.nan", ".nan is not a finite number"),
    ],
)
def test_settings_that_cannot_be_read(setting: str, what: str) -> None:
    shown = setting.replace("\0", "\\x00").replace("\udcff", "\\udcff")
    assert refused(FILES / "base.yaml", setting) == [f"--set {shown}: {what}"]


def test_settings_and_file_are_reported_together(folder: Path) -> None:
    write(folder, f="modl: x\n")
    assert refused("f.yaml", "nonsense", "workload.batch=0") == [
        "--set nonsense: must be key=value with a dotted key, such as workload.batch=4",
        "f.yaml:1:1: modl: unknown key 'modl'. Did you mean 'model'?",
        "--set workload.batch=0: workload.batch: must be at least 1, got 0",
    ]


# checks, and places for later checks


def test_contradictions_are_located(folder: Path) -> None:
    write(
        folder,
        base="optimizations:\n  kv: {block_size: 128}\n",
        top="extends: base.yaml\nworkload:\n  batch: 300\noptimizations:\n  kv: {layout: contiguous}\n",
    )
    assert refused("top.yaml", "engine.sequence_parallel=true") == [
        "top.yaml:3:10: workload.batch: workload.batch 300 is more than engine.max_num_seqs 256",
        "base.yaml:2:20: optimizations.kv.block_size: has no effect with layout contiguous. Remove it, or set it "
        "to null where a base file gives it",
        "--set engine.sequence_parallel=true: engine.sequence_parallel: has no effect with "
        "engine.tensor_parallel_size 1",
    ]
    # The advice works.
    assert load(
        "top.yaml", "workload.batch=1", "optimizations.kv.block_size=null"
    ).scenario.optimizations.kv.layout == ("contiguous")


def test_later_checks_can_say_where(folder: Path) -> None:
    write(folder, f="workload:\n  batch: 4\nmodel: m\n")
    loaded = load(
        "f.yaml", "workload.input_tokens=99", "engine.cudagraph_capture_sizes=[1]", "optimizations.graph=aclgraph"
    )
    assert located(loaded, "workload.batch") == "f.yaml:2:10"
    assert located(loaded, "workload.input_tokens") == "--set workload.input_tokens=99"
    assert located(loaded, "engine.cudagraph_capture_sizes[0]") == "--set engine.cudagraph_capture_sizes=[1]"
    # Of what is not given, the part of the file that lacks it; a `--set` next to it says nothing of it.
    assert located(loaded, "workload.output_tokens") == "f.yaml:2:3"
    assert located(loaded, "slo.ttft_ms") == "f.yaml:1:1"
    assert located(loaded, "nothing.like.this") == "f.yaml:1:1"
    error = problem(loaded, "model", "has 7 heads")
    assert str(error) == "f.yaml:3:8: model: has 7 heads"
    assert isinstance(error, ScenarioError)


def test_a_path_in_a_field_starts_from_the_file_that_holds_it(folder: Path) -> None:
    write(folder, sub__base="model: m\nhardware: h\n", top="extends: sub/base.yaml\nhardware: h2\n")
    loaded = load("top.yaml")
    assert folder_of(loaded, "model") == Path("sub")
    assert folder_of(loaded, "hardware") == Path(".")
    loaded = load("sub/base.yaml", "model=m2")
    assert folder_of(loaded, "model") == Path(".")
    assert folder_of(loaded, "description") == Path("sub")


# the file itself


def test_shipped_scenarios_go_by_name() -> None:
    assert shipped_names(FILES) == ["base", "tuned", "wrong"]
    loaded = load("tuned")
    assert (loaded.name, loaded.path.resolve()) == ("tuned", FILES / "tuned.yaml")


def test_a_missing_scenario_names_the_nearest(folder: Path) -> None:
    write(folder, decode="{}\n", sub__prefill="{}\n")
    assert refused("tunde") == ["tunde: no such scenario. Did you mean 'tuned'?"]
    assert refused("elsewhere/tuned.yaml") == ["elsewhere/tuned.yaml: no such scenario. Did you mean 'tuned'?"]
    assert refused("decod.yaml") == ["decod.yaml: no such scenario. Did you mean 'decode.yaml'?"]
    assert refused("sub/prefil.yaml") == ["sub/prefil.yaml: no such scenario. Did you mean 'prefill.yaml'?"]
    assert refused("zzz") == ["zzz: no such scenario. Shipped scenarios: base, tuned, wrong"]
    assert refused("zzz", shipped=folder / "sub" / "none") == ["zzz: no such scenario"]
    assert refused("") == ["no scenario given: name a file or a shipped scenario"]


def test_what_is_no_scenario_file(folder: Path) -> None:
    (folder / "base").mkdir()
    (folder / "other").mkdir()
    (folder / "image.yaml").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (folder / "late.yaml").write_bytes(b"a: 1\nb: \xff\n")
    (folder / "dangling.yaml").symlink_to("nowhere.yaml")
    assert refused("other") == ["other: is a folder, not a YAML file"]
    assert load("base").name == "base"  # the shipped scenario, not the folder
    assert refused("image.yaml") == ["image.yaml: is binary (byte 8 is zero), not YAML text"]
    assert refused("late.yaml") == ["late.yaml:2:4: byte 0xff is not UTF-8"]
    assert refused("dangling.yaml") == ["dangling.yaml: no such file"]
    assert refused("image.yaml/x.yaml") == [
        "image.yaml/x.yaml: no such scenario. Shipped scenarios: base, tuned, wrong"
    ]
    assert refused("/dev/zero") == ["/dev/zero: is not a regular file"]
    assert refused("x\0y")[0].startswith("x\\x00y: no such scenario")


def test_an_unreadable_file_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, f="{}\n")

    def denied(self: Path, *args: Any, **keywords: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", denied)  # a mode of 000 does not stop root
    assert refused("f.yaml") == ["f.yaml: cannot be read: Permission denied"]


def test_an_error_survives_pickling() -> None:
    error = ScenarioError(["a:1:1: x", "a:2:1: y"])
    again = pickle.loads(pickle.dumps(error))
    assert (again.messages, str(again)) == (("a:1:1: x", "a:2:1: y"), "a:1:1: x\na:2:1: y")


# speed, determinism


def test_messages_do_not_depend_on_the_hash_seed(root: Path) -> None:
    program = (
        "from scenarios.loader import load_scenario\n"
        "try: load_scenario('tests/scenarios/files/wrong.yaml', ['batch=1', 'engine.x=2'])\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    outputs = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        outputs.add(done.stdout)
    (output,) = outputs
    assert output.startswith("ScenarioError tests/scenarios/files/wrong.yaml:2:8: model: must be text")


def test_loading_imports_nothing_heavy(root: Path) -> None:
    program = "import sys, scenarios.loader; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert modules.isdisjoint({"numpy", "simpy", "torch", "pandas", "scipy", "rich", "typer", "sim", "device"})
