"""Fields that take one of a few words: a type alone would let a misspelt one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs

from lw2g.errors import ConfigError, ContractError, nearest, shown

__all__ = ["Growth", "Screen", "is_one_of"]

Growth = Literal["sets", "fixed"]
"""Whether a baseline composes with every growth policy, or runs under ``always`` only."""

Screen = Literal["least", "most", "ends"]
"""Which sets are measured if there are too many: those whose spaces capture the least energy of the new task
(they hinder it least), the most, or half of each."""


def is_one_of(
    words: tuple[str, ...], error: type[ConfigError | ContractError] = ConfigError
) -> Callable[[Any, attrs.Attribute[Any], object], None]:
    """Return a validator of a field that takes these words alone, and raises an error for others."""

    def check(record: Any, field: attrs.Attribute[Any], value: object) -> None:
        if isinstance(value, str) and value in words:
            return
        near = nearest(value, words) if isinstance(value, str) else ""
        what = f"{_label(record)}: {field.name} is {shown(value)}{near}"
        raise error(what, f"use one of {', '.join(map(repr, words))}")

    return check


def _label(record: Any) -> str:
    """Return what a record is: a component by kind and name, anything else by its class."""
    if hasattr(record, "kind") and hasattr(record, "name"):
        return f"{record.kind} {record.name!r}"
    return type(record).__name__
