"""Both languages say everything: no empty text, the same braces, a word for all that the model can name."""

from __future__ import annotations

import importlib
import pkgutil
import string
from collections.abc import Mapping

import pytest

from app_pages.parts import texts
from app_pages.parts.controls import CONTROLS, GROUPS
from app_pages.parts.palette import CLASSES
from app_pages.parts.sidebar import schema_help
from app_pages.parts.texts import LANGUAGES, fields, lab, speaker, verdicts
from scenarios.passes import PASSES
from scenarios.schema import Fusion
from sim.accuracy.families import FAMILIES
from sim.compare import causes, classes
from sim.hardware.profile import SOURCES


def tables() -> list[tuple[str, str, Mapping[str, tuple[str, ...]]]]:
    result = []
    for module in pkgutil.iter_modules(texts.__path__):
        loaded = importlib.import_module(f"app_pages.parts.texts.{module.name}")
        result += [
            (module.name, name, table)
            for name, table in vars(loaded).items()
            if name.isupper()
            and isinstance(table, dict)
            and name != "LANGUAGES"
            and all(isinstance(entry, tuple) for entry in table.values())
        ]
    return result


def braces(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize(
    ("module", "name", "table"), [pytest.param(*item, id=f"{item[0]}.{item[1]}") for item in tables()]
)
def test_every_text_stands_in_both_languages(module: str, name: str, table: Mapping[str, tuple[str, ...]]) -> None:
    assert table
    for key, entry in table.items():
        assert len(entry) == len(LANGUAGES), key
        assert all(text.strip() for text in entry), key
        assert len({frozenset(braces(text)) for text in entry}) == 1, key


def test_tables_are_found() -> None:
    assert {name for name, _, _ in tables()} >= {"calibration", "common", "compare", "fields", "lab"}


def test_speaker_takes_the_language() -> None:
    table = {"hello": ("hello {name}", "你好 {name}"), "brace": ("{", "{")}
    assert speaker(table, "en")("hello", name="A") == "hello A"
    assert speaker(table, "zh")("hello", name="A") == "你好 A"
    assert speaker(table, "zh")("brace") == "{"


def test_every_widget_has_a_label_and_an_explanation() -> None:
    named = {control.field for control in CONTROLS}
    assert named | {"scenario"} == set(fields.LABELS)
    assert named == set(fields.HELP_ZH)
    assert all(schema_help(field) for field in named)
    assert all(fields.HELP_ZH.values())
    assert set(GROUPS) == set(fields.GROUP_LABELS)


def test_every_switch_of_the_design_has_a_widget() -> None:
    named = {control.field for control in CONTROLS}
    assert {f"optimizations.{item.switch}" for item in PASSES} <= named
    assert {f"optimizations.fusion.{name}" for name in Fusion.model_fields} <= named


def test_every_optimisation_has_a_name() -> None:
    assert {item.switch for item in PASSES} == set(fields.SWITCHES)


def test_every_part_of_a_step_has_words() -> None:
    from typing import get_args

    from sim.predict.shares import Part

    assert set(get_args(Part)) == set(verdicts.PARTS)


def test_every_bottleneck_has_a_sentence() -> None:
    from typing import get_args

    from sim.predict.explain import Bottleneck

    assert set(get_args(Bottleneck)) == set(verdicts.TEXTS) == set(verdicts.EVIDENCE_ZH)


def test_words_of_the_model_have_words_of_the_lab() -> None:
    from typing import get_args

    from app_pages.parts.texts import calibration, common, compare
    from sim.predict.gains import Verdict

    assert {f"verdict_{get_arg.replace(' ', '_')}" for get_arg in get_args(Verdict)} <= set(lab.TEXTS)
    assert {f"source_{item}" for item in SOURCES} <= set(lab.TEXTS) & set(calibration.TEXTS)
    assert {f"class_{value}" for value in CLASSES} <= set(common.TEXTS)
    assert {f"family_{entry}" for entry in FAMILIES} <= set(calibration.TEXTS)
    kinds = [classes.MATMUL, classes.ATTENTION, classes.NORM, classes.CACHE, classes.ELEMENTWISE, classes.COPY,
             classes.AI_CPU, classes.TRANSFER, classes.WAIT, causes.HOST_LATE, causes.DEVICE_GAP, causes.IDLE,
             causes.BEFORE, causes.AFTER]  # fmt: skip
    assert {f"cause_{kind}" for kind in kinds} <= set(compare.TEXTS)
