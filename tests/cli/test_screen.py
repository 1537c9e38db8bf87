"""What is shown: it fits the terminal, says things as they are written, and ends well wherever it is sent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from scenarios.loader import load_scenario, shipped_names
from sim.compare import compare_results
from sim.report import terminal
from sim.report.compare import print_compare
from sim.report.formats import bar, ms, size
from sim.report.run import print_explain, print_run
from tests.cli.shipped import shipped

Answer = Callable[..., dict[str, Any]]
WhatIf = Callable[..., Any]

ROOT = Path(__file__).resolve().parents[2]
SEED, EAGER = "qwen3_8b_decode", "qwen3_8b_910b2_eager"
ESCAPE = "\x1b"


def drawn(draw: Callable[[Console, dict[str, Any]], None], document: dict[str, Any], columns: int) -> str:
    file = StringIO()
    draw(Console(file=file, width=columns, highlight=False, markup=False, emoji=False), document)
    return file.getvalue()


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("columns", [80, 100, 132, 200])
@pytest.mark.parametrize("scenario", shipped())
def test_nothing_is_cut_and_no_line_is_too_long(answer: Answer, scenario: str, columns: int) -> None:
    document = answer(scenario)
    for draw in (print_run, print_explain):
        text = drawn(draw, document, columns)
        assert max(cell_len(line) for line in lines(text)) <= columns
        assert "…" not in text
        for gain in document["gains"]:
            assert f"{gain['pass']}={gain['value']}" in text
        for row in document["kernels"][:10]:
            assert row["op_type"] in text
        assert "█" in text.partition("Optimisations")[2], "the bars of the waterfall are there at any width"


#: A served load has a report of its own: tests/cli/test_serving.py.
STEPS = [name for name in shipped_names() if load_scenario(name).scenario.workload.traffic is None]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_readme_shows_what_is_printed(answer: Answer, root: Path, name: str) -> None:
    printed = lines(drawn(print_run, answer("qwen3_8b_decode"), 112))
    text = (root / name).read_text(encoding="utf-8")
    block = text[text.index("    qwen3_8b_decode  ") : text.index("| kernels: " if name == "README.md" else "以上数字")]
    shown = [
        line.removeprefix("    ") for line in block.splitlines() if line.startswith("    ") and line.strip() != "..."
    ]
    assert len(shown) >= 15
    assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize("columns", [80, 132])
@pytest.mark.parametrize("scenario", STEPS)
def test_the_first_screen_answers_the_questions(answer: Answer, scenario: str, columns: int) -> None:
    """How long, where the time goes, what the bottleneck is, what to try: within the first 34 lines."""
    top = "\n".join(lines(drawn(print_run, answer(scenario), columns))[:34])
    for said in ("TPOT", "TTFT", "Step ", "computing ", "free ", "Bottleneck: ", "Try next"):
        assert said in top, f"{said!r} is not on the first screen"


def test_the_numbers_shown_are_those_of_the_document(answer: Answer) -> None:
    document = answer(EAGER)
    text = drawn(print_run, document, 132)
    assert f"Step {document['step']['total_us'] / 1000:.3f} ms" in text
    assert f"{document['kernel_count']:,} kernels, {document['launches']:,} host launches" in text
    assert f"TPOT       {document['metrics']['tpot_ms']['value']:.2f} ms" in text
    gain = document["gains"][0]
    assert re.search(rf"{gain['pass']}={gain['value']} +off +{gain['alone_ratio']:.3f}x", text)


def test_stages_micro_batches_and_bubble_are_shown(answer: Answer) -> None:
    document = answer("llama_3_1_70b_tp4_pp2_decode")
    pipeline = document["pipeline"]
    words = " ".join(drawn(print_run, document, 80).split())
    assert "pipeline of 2 stages (40+40 layers), 2 micro-batches: bubble" in words
    by_stage = ", ".join(ms(stage["bubble_us"]) for stage in pipeline["stages"])
    assert f"bubble {ms(pipeline['bubble_us'])} ms ({pipeline['bubble_share']:.0%}) a stage, {by_stage} ms" in words
    assert "usable on the fullest of 2 stages" in words
    assert "pipeline of" not in drawn(print_run, answer(SEED), 80)


@pytest.mark.parametrize(
    ("fit", "most", "shown"),
    [
        (783, 256, "in one step at most 256, by max_num_seqs"),
        (783, 2048, "in one step at most 783, by memory"),
        (2048, 2048, "in one step at most 2,048, by max_num_seqs"),
    ],
)
def test_what_limits_the_requests_of_a_step_is_named(answer: Answer, fit: int, most: int, shown: str) -> None:
    document = json.loads(json.dumps(answer(SEED)))
    document["scenario"]["engine"]["max_num_seqs"] = most
    document["capacity"] |= {"max_concurrent_requests": fit, "max_running_requests": min(fit, most)}
    assert shown in drawn(print_run, document, 200)


@pytest.mark.parametrize("columns", [80, 100, 132, 200])
def test_settings_to_copy_are_never_broken(answer: Answer, columns: int) -> None:
    """What takes several lines ends each but the last in a backslash, so that pasted lines are one command."""
    document = answer(EAGER)
    text = drawn(print_run, document, columns).partition("Try next\n")[2].partition("Kernels by time")[0]
    pasted = " ".join(text.replace("\\\n", " ").split())
    worth = [item["settings"] for item in document["advice"] if item["ratio"] >= 1.005][:5]
    assert [len(settings) for settings in worth if len(settings) > 2], "one of them takes several lines"
    for settings in worth:
        assert " ".join(f"--set {pair}" for pair in settings) in pasted
    before = ""
    for line in text.splitlines():
        if line.startswith(" " * 10 + "--set"):
            assert before.endswith("\\") or re.match(r" +[\d.]+x  ", before)
        before = line


def hostile(document: dict[str, Any], text: str) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(document))
    changed["scenario"]["name"] = changed["scenario"]["description"] = changed["scenario"]["model"] = text
    changed["hardware"] = changed["bottleneck"]["evidence"] = text
    for row in changed["kernels"]:
        row["op_type"] = row["kind"] = text
    return changed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[red]b[/red]", "[red]b[/red]"),
        ("[/]", "[/]"),
        (":smile:", ":smile:"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x1b]0;t\x07", "\\x1b]0;t\\x07"),
        ("a\u202eb", "a\\u202eb"),
        ("\x9b1m", "\\x9b1m"),
        ("two\n\tlines", "two lines"),
    ],
)
def test_what_a_user_wrote_is_shown_and_not_obeyed(answer: Answer, text: str, shown: str) -> None:
    document = hostile(answer(SEED), text)
    compared = compare_results(document, hostile(answer(SEED, "workload.batch=4"), text))
    for output in (
        drawn(print_run, document, 200),
        drawn(print_explain, document, 200),
        drawn(print_compare, compared, 200),
    ):
        assert shown in output
        assert not set(output) & {ESCAPE, "\x07", "\x9b", "\u202e"}


def test_a_description_in_a_file_is_shown_literally(whatif: WhatIf, tmp_path: Path) -> None:
    scenario = tmp_path / "[bold]mine.yaml"
    scenario.write_text('description: "[red]no colour[/red] [link=x] :rocket: 昇腾"\n', "utf-8")
    done = whatif("run", scenario)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("\n[bold]mine  [red]no colour[/red] [link=x] :rocket: 昇腾\n")


def test_a_pipe_gets_no_colour_codes_and_no_padding(process: Callable[..., Any]) -> None:
    done = process("run", SEED, env={"TERM": "xterm-256color", "COLORTERM": "truecolor"})
    text = done.stdout.decode("utf-8")
    assert done.returncode == 0
    assert ESCAPE not in text
    assert not re.search(r" $", text, flags=re.MULTILINE)
    assert max(map(len, text.splitlines())) <= terminal.PIPE_WIDTH


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_an_output_without_unicode_gets_plain_bars(
    process: Callable[..., Any], root: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "x.yaml").write_text("description: Ж\nextends: qwen3_8b_decode\n", "utf-8")
    done = process("run", "x.yaml", env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("ascii")
    assert "x  \\u0416" in text
    assert re.search(r"Step [\d.]+ ms  #{30,}[-.]*\n", text)


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("▏█▌ 1·2 Ж", "utf-8", "▏█▌ 1·2 Ж"),
        ("▏█▌ 1·2 Ж", "ascii", "-#- 1-2 \\u0416"),
        ("█ µ", "latin-1", "# µ"),
        ("a\udcffb", "utf-8", "a\\udcffb"),
    ],
)
def test_text_is_made_encodable(text: str, encoding: str, expected: str) -> None:
    assert terminal.encodable(text, encoding) == expected
    assert expected.encode(encoding)


def test_a_reader_that_has_seen_enough_is_no_error(process: Callable[..., Any]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = process("run", SEED, stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_under_standard_output_is_one_line(process: Callable[..., Any]) -> None:
    with open("/dev/full", "wb") as full:
        done = process("schema", stdout=full)
    assert done.returncode == 2
    assert done.stderr == b"standard output: cannot be written: No space left on device\n"


def test_a_closed_standard_output_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(Exception, match="standard output: cannot be written: it is closed"):
        terminal.write("text")


def test_bars_numbers_and_sizes() -> None:
    assert bar(0.5, 8) == "████"
    assert bar(0.53, 8) == "████▎"
    assert bar(0, 8) == ""
    assert bar(1e-9, 8) == "▏"
    assert bar(7, 8) == "████████"
    assert [ms(us) for us in (13_493.2, 151_530, 2_771_300, 0)] == ["13.493", "151.5", "2,771.3", "0.000"]
    assert [ms(us, signed=True) for us in (-30_435.1, 442.6, -0.1)] == ["-30.435", "+0.443", "0.000"]
    assert [size(n) for n in (17_513_851_648, 9_437_184, 0)] == ["16.3 GiB", "9 MiB", "0 MiB"]


# Odd surroundings


def test_no_column_is_drawn_beyond_a_thousand(whatif: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "999999999")
    done = whatif("list", "passes")
    assert done.status == 0
    assert max(map(len, done.out.splitlines())) <= terminal.MAX_WIDTH
    monkeypatch.setenv("COLUMNS", "9" * 5000)
    assert whatif("--help").status == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_help_that_cannot_be_written_says_so() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "cli", "--help"], stdout=full, stderr=subprocess.PIPE, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.decode() == "standard output: cannot be written: No space left on device\n"


def test_a_working_folder_that_is_gone_is_named(
    whatif: WhatIf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # restores the folder afterwards
    removed = tmp_path / "removed"
    removed.mkdir()
    os.chdir(removed)
    removed.rmdir()
    done = whatif("run", SEED, "--set", "model=Tiny-Llama", "--json", "o.json")
    assert (done.status, done.problems) == (2, ["the working folder no longer exists: change to another"])
