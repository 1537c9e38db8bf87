"""What the measure page takes of a result with a measured part: present, of its type, and finite."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scenarios.errors import ScenarioError, printable

#: Nothing that is measured comes near the upper end; it keeps sums and ratios finite.
Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
#: What is divided by.
Length = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]


class _Form(BaseModel):
    model_config = ConfigDict(strict=True)


class _Op(_Form):
    name: str
    layer: int
    kind: str
    form: str
    predicted_us: Amount
    measured_us: Amount
    low_us: Amount
    high_us: Amount


class _Kernel(_Form):
    op_type: str
    form: str
    count: int
    predicted_us: Amount
    total_us: Amount


class _Step(_Form):
    total_us: Length


class _Steady(_Form):
    median_us: Amount
    low_us: Amount
    high_us: Amount


class _Errors(_Form):
    op_median: Amount


class _Measured(_Form):
    backend: str
    device: str
    repeats: int
    step: _Step
    steady_step: _Steady | None = None
    errors: _Errors
    kernels: Annotated[list[_Kernel], Field(min_length=1)]
    ops: Annotated[list[_Op], Field(min_length=1)]


class _Scenario(_Form):
    name: str


class _Result(_Form):
    scenario: _Scenario
    step: _Step
    measured: _Measured


def check(name: str, result: object) -> None:
    """Raises ScenarioError in the name of the file, with the first thing that is wrong."""
    try:
        _Result.model_validate(result)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "top level"
        raise ScenarioError([f"{printable(name, 80)}: {place}: not what whatif run --backend writes there"]) from None
