"""Lesson: a column-parallel product concatenates, a row-parallel one sums."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from app_pages.learn.cases import case
from app_pages.learn.lesson import Lesson, Told, conclude, draw, show_lesson
from app_pages.learn.rounding import Precision
from app_pages.learn.tensor_parallel import experiment as tensor_parallel
from app_pages.learn.tensor_parallel.experiment import Rounding, Shown, Split
from app_pages.learn.tensor_parallel.texts import TEXTS
from app_pages.parts import formats
from app_pages.parts.bound import choice, steps
from app_pages.parts.charts import Chart
from app_pages.parts.charts.maps import matrices
from app_pages.parts.charts.plots import lines
from app_pages.parts.page import quiet
from app_pages.parts.palette import ACCENT, CLASSES

RANKS = (1, 2, 4, 8)
SPLITS: tuple[Split, ...] = ("columns", "rows")
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16", "fp32")
INNER = (512, 1024, 2048, 4096)
ROWS, COLS = 4, 256


@lru_cache(maxsize=256)
def _rounding(split: Split, ranks: int, precision: Precision, k: int) -> Rounding:
    return tensor_parallel.rounding(split, ranks, precision, ROWS, k, COLS)


def body(lesson: Lesson) -> Told:
    with st.container(horizontal=True):
        split = choice("split", lesson.say("split"), SPLITS, lesson.say, default=1)
        ranks = steps("ranks", lesson.say("ranks"), RANKS[1:], 2)
        precision = choice("precision", lesson.say("precision"), PRECISIONS)
        k = steps("k", lesson.say("k"), INNER, 2048)
    kind = next(p for p in PRECISIONS if p == precision)
    how = next(s for s in SPLITS if s == split)
    errors = {s: {n: _rounding(s, n, kind, k) for n in RANKS} for s in SPLITS}
    conclude(
        lesson.say(
            "answer",
            rows=ROWS,
            k=k,
            n=COLS,
            precision=precision,
            ranks=ranks,
            columns_equal=formats.percent(errors["columns"][ranks].equal_share),
            rows_equal=formats.percent(errors["rows"][ranks].equal_share),
        )
    )
    quiet(f"{lesson.say('collective')}: {lesson.say('all_gather' if how == 'columns' else 'all_reduce')}")
    draw(lesson.say("picture", ranks=ranks), _picture(lesson, tensor_parallel.shown(how, ranks), how, ranks))
    _curve(lesson, errors, ranks)
    part = f"{ROWS} \\times {k}" if how == "columns" else f"{ROWS} \\times {k // ranks}"
    other = f"{k} \\times {COLS // ranks}" if how == "columns" else f"{k // ranks} \\times {COLS}"
    result = f"{ROWS} \\times {COLS // ranks}" if how == "columns" else f"{ROWS} \\times {COLS}"
    formula = r"Y = [\,XW_0\;\; XW_1\;\dots\,]" if how == "columns" else r"Y = X_0 W_0 + X_1 W_1 + \dots"
    filled = rf"[{part}]\,[{other}] = [{result}], \quad n = {ranks}"
    on_cards = case("model=Qwen3-8B", "hardware=atlas_a3_die", f"engine.tensor_parallel_size={ranks}")
    return Told(formula, filled, on_cards)


def _picture(lesson: Lesson, shown: Shown, split: Split, ranks: int) -> Chart:
    """X, W, what each rank makes of its parts, and the result. A cell's colour is the rank that holds it."""
    inner, out = shown.w.shape
    w_ranks = _ranks_of(out if split == "columns" else inner, ranks)
    x_ranks = [-1] * inner if split == "columns" else _ranks_of(inner, ranks)
    y_ranks = _ranks_of(out, ranks) if split == "columns" else [-1] * out
    pictures: list[tuple[str, list[list[float]], list[int]]] = [("X", shown.x.tolist(), x_ranks)]
    pictures.append(("W", shown.w.tolist(), w_ranks))
    pictures += [
        (lesson.say("part", rank=rank), part.tolist(), [rank] * part.shape[1])
        for rank, part in enumerate(shown.y_parts)
    ]
    pictures.append((f"Y, {lesson.say('joined')}", shown.y.tolist(), y_ranks))
    alt = lesson.say("picture_alt", how=lesson.say(f"how_{split}"))
    return matrices("tensor-parallel", pictures, alt, by_row=("W",) if split == "rows" else ())


def _ranks_of(count: int, ranks: int) -> list[int]:
    """The rank that holds each of `count` columns or rows; ranks divide them evenly here."""
    return [place * ranks // count for place in range(count)]


def _curve(lesson: Lesson, errors: dict[Split, dict[int, Rounding]], ranks: int) -> None:
    rows = [
        {
            "x": n,
            "series": lesson.say(split),
            "value": r.split_error,
            "shown": f"{r.split_error:.1e}, {lesson.say('equal')}: {formats.percent(r.equal_share)}",
        }
        for split, by_ranks in errors.items()
        for n, r in by_ranks.items()
    ]
    last = RANKS[-1]
    alt = lesson.say(
        "rounding_alt",
        most=last,
        columns=f"{errors['columns'][last].split_error:.1e}",
        rows=f"{errors['rows'][last].split_error:.1e}",
    )
    colours = {lesson.say("columns"): ACCENT, lesson.say("rows"): CLASSES["attention"]}
    chart = lines(
        "tensor-parallel-error",
        rows,
        alt,
        colours,
        x_title=lesson.say("ranks"),
        y_title=lesson.say("error"),
        x_log=True,
        now=ranks,
    )
    draw(lesson.say("rounding_chart"), chart)


show_lesson("tensor_parallel", TEXTS, body)
