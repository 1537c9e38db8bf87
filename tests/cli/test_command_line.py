"""A command line that does not parse: one line that names the command, what is wrong and the nearest word; status 2."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

import cli

WhatIf = Callable[..., Any]

#: Every command with its parameters, as the parser has them.
COMMANDS: dict[str, list[Any]] = {
    name: list(command.params)
    for name, command in typer.main.get_command(cli.app).commands.items()  # type: ignore[attr-defined]
}
#: What stands for each positional argument; no command comes as far as to look at it.
FILLER = "x.yaml"


def positional(command: str) -> list[str]:
    return [FILLER for p in COMMANDS[command] if p.param_type_name == "argument" and p.required]


def options(command: str) -> list[Any]:
    return [p for p in COMMANDS[command] if p.param_type_name == "option" and p.name != "help"]


def required(command: str, but: str = "") -> list[str]:
    return [word for p in options(command) if p.required and p.opts[0] != but for word in (p.opts[0], "1")]


def each_option(*, is_flag: bool) -> list[Any]:
    return [
        pytest.param(command, option, id=f"{command} {option.opts[0]}")
        for command in COMMANDS
        for option in options(command)
        if bool(option.is_flag) == is_flag
    ]


def wants_number(case: Any) -> bool:
    """Whether the option of a case of `each_option` is a number in the command's signature."""
    command, option = case.values
    (function,) = (
        c.callback for c in cli.app.registered_commands if c.name == command or c.callback.__name__ == command
    )
    return re.search(r"\b(int|float)\b", str(function.__annotations__[option.name])) is not None


@pytest.fixture
def refused(whatif: WhatIf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`refused(*arguments)`: the one line of a call that must be refused, and leave no file behind."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> str:
        done = whatif(*arguments)
        assert (done.status, done.out) == (2, "")
        assert list(tmp_path.iterdir()) == []
        (line,) = done.problems
        return str(line)

    return run


def test_every_command_is_tried() -> None:
    assert {"run", "compare", "calibrate", "validate", "doctor", "schema"} <= set(COMMANDS)
    assert len(each_option(is_flag=False)) >= 40


@pytest.mark.parametrize(("command", "option"), each_option(is_flag=False))
def test_an_option_without_its_value(refused: Callable[..., str], command: str, option: Any) -> None:
    for name in option.opts:
        line = refused(command, *positional(command), *required(command, option.opts[0]), name)
        assert line == f"whatif {command}: {name} needs a value"


@pytest.mark.parametrize(("command", "option"), each_option(is_flag=True))
def test_a_flag_with_a_value(refused: Callable[..., str], command: str, option: Any) -> None:
    line = refused(command, *positional(command), *required(command), f"{option.opts[0]}=3")
    assert line == f"whatif {command}: {option.opts[0]} takes no value"


@pytest.mark.parametrize(("command", "option"), [p for p in each_option(is_flag=False) if wants_number(p)])
def test_an_option_that_wants_a_number(refused: Callable[..., str], command: str, option: Any) -> None:
    for word in ("many", "", "--json"):
        name = option.opts[0]
        line = refused(command, *positional(command), *required(command, name), name, word)
        assert line.startswith(f"whatif {command}: {name}: must be a")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_there_is_not(refused: Callable[..., str], command: str) -> None:
    assert refused(command, "--qqqq") == f"whatif {command}: no such option '--qqqq'"
    assert refused(command, "-q") == f"whatif {command}: no such option '-q'"
    for option in options(command):
        if len(option.opts[0]) > 5:
            line = refused(command, option.opts[0][:-1])
            assert line.startswith(f"whatif {command}: no such option '{option.opts[0][:-1]}'. Did you mean '--")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_argument_too_many_and_one_too_few(refused: Callable[..., str], command: str) -> None:
    arguments = [p for p in COMMANDS[command] if p.param_type_name == "argument"]
    line = refused(command, *required(command), *[FILLER] * len(arguments), "more")
    assert line == f"whatif {command}: got unexpected extra argument(s) (more)"
    for count in range(len(positional(command))):
        line = refused(command, *required(command), *positional(command)[:count])
        assert line == f"whatif {command}: missing argument {arguments[count].metavar}"


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_is_missing(refused: Callable[..., str], command: str) -> None:
    for option in options(command):
        if option.required:
            line = refused(command, *positional(command), *required(command, option.opts[0]))
            assert line == f"whatif {command}: missing option {option.opts[0]} {option.metavar}"


@pytest.mark.parametrize(
    ("word", "hint"), [("ruin", ". Did you mean 'run'?"), ("validat", ". Did you mean 'validate'?"), ("qqqq", "")]
)
def test_a_command_that_there_is_not(refused: Callable[..., str], word: str, hint: str) -> None:
    assert refused(word, "x") == f"whatif: no such command '{word}'{hint}"


def test_words_that_a_terminal_would_obey_are_escaped_and_cut(refused: Callable[..., str]) -> None:
    for arguments in (
        ["\x1b[31m"],
        ["run", "--\x1b[31m"],
        ["run", "a", "\x1b[31m"],
        ["r" * 5_000],
        ["run", "a", "b" * 5_000],
    ):
        line = refused(*arguments)
        assert "\x1b" not in line
        assert len(line) <= 1_000


def test_seconds_of_a_calibration_are_bounded(refused: Callable[..., str]) -> None:
    for seconds in ("nan", "inf", "1e999", "0", "-1", "86401"):
        line = refused("calibrate", "--backend", "cpu", "--out", "o.yaml", "--budget-s", seconds)
        assert line.startswith("whatif calibrate: --budget-s: must be ")


def test_help_and_an_empty_command_line(whatif: WhatIf) -> None:
    for arguments, status in (([], 2), (["--help"], 0), *(([command, "--help"], 0) for command in COMMANDS)):
        done = whatif(*arguments)
        assert (done.status, done.err) == (status, "")
        assert "Usage: whatif" in done.out


def test_a_command_looks_for_circles_rarely_and_not_at_its_end(root: Path) -> None:
    """In a process of its own: a threshold of 100,000, and all that is alive is out of the last collection's sight."""
    code = (
        "import atexit, gc, sys, cli\n"
        "atexit.register(lambda: print('at the end', gc.get_freeze_count() > 1000, gc.get_threshold()[0]))\n"
        "sys.argv = ['whatif', 'list', 'passes']\n"
        "cli.main()"
    )
    # Exit handlers run the last first, so the command's own comes before that of a test registered earlier.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.endswith("at the end True 100000\n")


def test_rare_collections_still_free_circles(whatif: WhatIf) -> None:
    whatif("schema")
    assert gc.isenabled()
    assert all(gc.get_threshold())
