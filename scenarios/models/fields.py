"""The fields of a config.json, read one by one; what is wrong with them gathers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.errors import shown
from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class Fields:
    """A config.json that is read field by field; what is wrong with it gathers in `problems`. inside: the mapping that
    the fields are in, with its dot."""

    path: Path
    fields: dict[str, Any]
    problems: list[str]
    inside: str = ""

    def whole(self, key: str, default: int | None = None, most: int = 1 << 24, low: int = 1) -> int:
        value = self.fields.get(key, default)
        if value is None and default is not None:
            value = default
        if isinstance(value, float) and value.is_integer():  # some writers have 4096.0
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= most:
            self.wrong(f"{key}: must be a whole number from {low} to {most}, got {shown(value)}")
            return max(1, low)
        return value

    def number(self, key: str, default: float, or_none: bool = False) -> float:
        """The number under `key`, `default` where it is null; or_none: it may also be zero, which is the same."""
        value = self.fields.get(key)
        value = default if value is None else value
        if or_none and not value and not isinstance(value, bool):
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            self.wrong(f"{key}: must be a positive number, got {shown(value)}")
            return default
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Whether `key` is on; `default` where it is left out or null."""
        value = self.fields.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            self.wrong(f"{key}: must be true or false, got {shown(value)}")
            return default
        return value

    def wrong(self, what: str) -> None:
        self.problems.append(f"{self.path}: {self.inside}{what}")
