"""Files that extend one another: what is laid over what, from where, and which chains are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.loader import located
from tests.scenarios.loading import FILES, load, refused, write


def test_extends_lays_the_file_over_its_base() -> None:
    loaded = load(FILES / "tuned.yaml")
    scenario = loaded.scenario
    assert scenario.description == "the base with graphs and eight requests"
    assert (scenario.workload.batch, scenario.workload.input_tokens) == (8, 1024)
    assert (scenario.engine.max_num_seqs, scenario.engine.max_model_len) == (64, None)
    assert scenario.engine.cudagraph_capture_sizes == (1, 2, 4, 8)
    assert (scenario.optimizations.graph, scenario.optimizations.kv.block_size) == ("aclgraph", 128)
    assert loaded.name == "tuned"


def test_a_value_is_located_in_the_file_that_holds_it(folder: Path) -> None:
    write(folder, sub__base="workload:\n  batch: 0\n  phase: decod\n", top="extends: sub/base.yaml\nmodel: 3\n")
    assert refused("top.yaml") == [
        "top.yaml:2:8: model: must be text, got 3. Put it in quotes",
        "sub/base.yaml:2:10: workload.batch: must be at least 1, got 0",
        "sub/base.yaml:3:10: workload.phase: 'decod' is not one of decode, prefill, mixed. Did you mean 'decode'?",
    ]


def test_chains_are_relative_to_each_file(folder: Path) -> None:
    write(
        folder,
        top="extends: a/one.yaml\n",
        a__one="extends: b/two.yaml\nworkload: {batch: 2}\n",
        a__b__two="extends: ../../three.yaml\nworkload: {batch: 3, input_tokens: 5}\n",
        three="workload: {output_tokens: 7}\n",
    )
    workload = load("top.yaml").scenario.workload
    assert (workload.batch, workload.input_tokens, workload.output_tokens) == (2, 5, 7)


def test_a_base_may_be_a_shipped_scenario_by_name(folder: Path) -> None:
    write(folder, top="extends: base\nworkload: {batch: 4}\n")
    loaded = load("top.yaml")
    assert (loaded.scenario.workload.batch, loaded.scenario.engine.max_num_seqs) == (4, 64)
    assert located(loaded, "engine.max_num_seqs") == f"{FILES / 'base.yaml'}:9:17"
    # A file of that name next to it goes first.
    (folder / "base").write_text("engine: {max_num_seqs: 8}", encoding="utf-8")
    assert load("top.yaml").scenario.engine.max_num_seqs == 8


def test_a_shipped_base_may_extend_its_neighbour(folder: Path) -> None:
    write(folder, top="extends: tuned\n")
    assert load("top.yaml").scenario.workload.batch == 8


def test_circles_are_refused(folder: Path) -> None:
    write(folder, a="extends: b.yaml\n", b="extends: sub/../a.yaml\n", me="model: x\nextends: me.yaml\n")
    (folder / "sub").mkdir()
    assert refused("a.yaml") == ["b.yaml:1:10: extends: goes in a circle: a.yaml -> b.yaml -> sub/../a.yaml"]
    assert refused("me.yaml") == ["me.yaml:2:10: extends: goes in a circle: me.yaml -> me.yaml"]


def test_long_chains_are_refused(folder: Path) -> None:
    write(folder, **{f"f{i}": f"extends: f{i + 1}.yaml\n" for i in range(8)}, f8="workload: {batch: 2}\n")
    assert load("f1.yaml").scenario.workload.batch == 2  # eight files: f1 to f8
    assert refused("f0.yaml") == ["f7.yaml:1:10: extends: more than 8 files extend one another"]


def test_bases_lie_inside_the_folder_of_the_first_file(folder: Path) -> None:
    write(folder, base="{}\n", sub__out="extends: ../base.yaml\n", sub__link="extends: linked.yaml\n")
    (folder / "sub" / "linked.yaml").symlink_to(folder / "base.yaml")
    outside = "lies outside 'sub', the folder of the first file"
    assert refused("sub/out.yaml") == [f"sub/out.yaml:1:10: extends: '../base.yaml' {outside}"]
    assert refused("sub/link.yaml") == [f"sub/link.yaml:1:10: extends: 'linked.yaml' {outside}"]
    write(folder, sub__abs=f"extends: {folder / 'base.yaml'}\n", sub__etc="extends: /etc/passwd\n")
    assert refused("sub/abs.yaml")[0].endswith(outside)
    assert refused("sub/etc.yaml") == [f"sub/etc.yaml:1:10: extends: '/etc/passwd' {outside}"]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("bse.yaml", "no such file 'bse.yaml'. Did you mean 'base.yaml'?"),
        ("tunde", "no such file 'tunde'. Did you mean 'tuned'?"),
        ("zzz", "no such file 'zzz'. Shipped scenarios: base, tuned, wrong"),
        ("x" * 5000, f"no such file '{'x' * 30}...{'x' * 20}'. Shipped scenarios: base, tuned, wrong"),
        ("3", "must be a file or the name of a shipped scenario, got 3"),
        ("[base.yaml]", "must be a file or the name of a shipped scenario, got a list"),
        ("''", "must be a file or the name of a shipped scenario, got ''"),
        ("", "must be a file or the name of a shipped scenario, got nothing"),
    ],
)
def test_bases_that_do_not_exist(folder: Path, value: str, what: str) -> None:
    write(folder, base="{}\n", top=f"model: x\nextends: {value}\n")
    column = 10 if value else 9
    assert refused("top.yaml") == [f"top.yaml:2:{column}: extends: {what}"]


def test_a_bad_base_does_not_hide_the_errors_of_the_file(folder: Path) -> None:
    write(folder, base="a: [1\n", sub__x="{}\n", top="extends: base.yaml\nmodl: x\n", dir="extends: sub\n")
    messages = refused("top.yaml")
    assert messages[0].startswith("base.yaml:2:1: not valid YAML: ")
    assert messages[1:] == ["top.yaml:2:1: modl: unknown key 'modl'. Did you mean 'model'?"]
    assert refused("dir.yaml") == ["sub: is a folder, not a YAML file"]


def test_an_emptied_section_is_not_a_reset(folder: Path) -> None:
    write(folder, base="workload: {batch: 2}\n", top="extends: base.yaml\nworkload:\n  # batch: 4\n")
    (message,) = refused("top.yaml")
    assert message.startswith("top.yaml:2:10: workload: must be a mapping with keys such as phase, batch")
    assert message.endswith("got nothing. Remove the key to take the defaults")
