"""A command line that does not parse, in one line like every other bad input.

Typer frames such messages over several lines, cut to the width of the terminal; a script that reads them, and a person
who pastes them, want the line alone. Which library raises them (click, or Typer's own copy of it) depends on Typer's
version, so they are known by the fields that both have.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

from scenarios.errors import ScenarioError, did_you_mean, quoted

#: New objects, and collections of younger ones, between two garbage collections: a command makes a million objects that
#: hold no circles, and with the interpreter's 700 a tenth of its time went into looking for some.
COLLECT_AFTER = 100_000, 20, 20


def collect_rarely() -> None:
    """Look for circles of objects rarely, and not at the end, when all memory is given back anyhow."""
    gc.set_threshold(*COLLECT_AFTER)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def run_command(app: Callable[..., Any]) -> int:
    """Parse the command line and run its command; the exit status that the command asks for.

    Raises ScenarioError, one line, where the command line does not parse. With no argument at all the help is shown,
    with status 2.
    """
    collect_rarely()
    try:
        status = app(prog_name="whatif", standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), end="")
            return 2
        raise ScenarioError([usage_line(error, sys.argv[1:])]) from None
    return status if isinstance(status, int) else 0


def usage_line(error: Any, arguments: Sequence[str]) -> str:
    """`whatif run: no such option '--jsn'. Did you mean '--json'?` of what the parser raised on `arguments`."""
    context = getattr(error, "ctx", None)
    if context is not None:
        return f"{context.command_path}: {_problem(error, context.command)}"
    # The parser says no context where an option lacks its value.
    command = next((word for word in arguments if not word.startswith("-")), "")
    return f"whatif {command}: {_problem(error, None)}"


def _problem(error: Any, command: Any) -> str:
    text = " ".join(str(error.format_message()).split()).removesuffix(".")
    return _SAYS.get(type(error).__name__, _other)(error, command, text)


def _no_such_option(error: Any, command: Any, _: str) -> str:
    word = error.option_name
    return f"no such option {quoted(word)}{did_you_mean(word, _options(command.params))}"


def _missing(error: Any, command: Any, text: str) -> str:
    if error.param is None:
        return _other(error, command, text)
    return f"missing {error.param.param_type_name} {_called(error.param)}"


def _bad_usage(error: Any, _: Any, text: str) -> str:
    return f"{error.option_name} {'needs a value' if 'requires' in text else 'takes no value'}"


def _bad_value(_: Any, __: Any, text: str) -> str:
    # `Invalid value for '--jobs': Input should be a valid integer, unable to parse string as an integer`
    where, _, what = text.partition(": ")
    name = where.removeprefix("Invalid value for ").strip("'")
    return f"{name}: {what.replace('Input should be', 'must be').replace('a valid integer', 'a whole number')}"


def _other(_: Any, command: Any, text: str) -> str:
    if text.startswith("No such command"):
        word = text.split("'")[1] if "'" in text else ""
        return f"no such command {quoted(word)}{did_you_mean(word, sorted(command.commands))}"
    return text[:1].lower() + text[1:]


#: What is said of an error of the parser, by the name of its class: of (error, command, the parser's own words).
_SAYS: dict[str, Callable[[Any, Any, str], str]] = {
    "NoSuchOption": _no_such_option,
    "MissingParameter": _missing,
    "BadOptionUsage": _bad_usage,
    "BadParameter": _bad_value,
}


def _called(parameter: Any) -> str:
    """`--out PROFILE.yaml` of an option, `SCENARIO` of an argument."""
    metavar = str(parameter.metavar or parameter.name.upper())
    return f"{parameter.opts[0]} {metavar}" if parameter.param_type_name == "option" else metavar


def _options(parameters: Sequence[Any]) -> list[str]:
    own = [name for parameter in parameters if parameter.param_type_name == "option" for name in parameter.opts]
    return ["--help", *own]
