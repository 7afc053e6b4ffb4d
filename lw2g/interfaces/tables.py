"""Tables of facts in TOML files of a plugin's package, checked when they are read. Imports no torch."""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, TypeVar

import attrs

from lw2g.errors import PluginError, nearest, shown
from lw2g.ground.texts import text_of

__all__ = ["leaves", "make_record", "read_table"]

T = TypeVar("T")
_PLAIN: Mapping[Any, Any] = {
    str: str,
    str | None: str,
    bool: bool,
    bool | None: bool,
    int: int,
    int | None: int,
    float: (int, float),
    float | None: (int, float),
}
"""What a field's type hint accepts in a file; other hints are left to the class."""


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables, each after its dotted key.

    >>> list(leaves({"run": {"seed": 1}, "weights": "w.npz"}))
    [('run.seed', 1), ('weights', 'w.npz')]
    """
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def read_table(package: str, file: str) -> dict[str, Any]:
    """Return the content of a TOML file in a package.

    Raises:
        PluginError: The file is missing or is not TOML; the message names it.
    """
    path = files(package) / file
    try:
        return tomllib.loads(text_of(path))
    except (OSError, ValueError) as error:
        # of a number with too many digits Python says a remedy for programmers after a semicolon
        reason = "it is not there" if isinstance(error, OSError) else str(error).partition(";")[0]
        raise PluginError(f"{package}/{file} cannot be read: {reason}", "install the plugin again") from error


def make_record(cls: type[T], table: Any, where: str, **made: Any) -> T:
    """Return a record of an attrs class from a table; lists become tuples.

    Args:
        cls: The class.
        table: Plain values by field name.
        where: File and key of the table, for messages.
        **made: Fields that the caller has built.

    Raises:
        PluginError: A key is unknown or missing, or the class refuses its value.

    >>> from lw2g.interfaces.dataset import ByHand
    >>> make_record(ByHand, {"where": "the publisher's page"}, "example/data.toml: routes").where
    "the publisher's page"
    """
    if not isinstance(table, Mapping):
        raise PluginError(f"{where}: expected a table but got {shown(table)}", "correct the file")
    values = dict(table)
    for key, value in table.items():
        if isinstance(value, list):
            values[key] = tuple(value)  # records are frozen, and so is what they hold
    values |= made
    fields = attrs.fields_dict(cls)  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for key, value in values.items():
        if key not in fields:
            raise PluginError(f"{where}.{key}: no such key{nearest(key, fields)}", "correct the file")
        accepted: Any = _PLAIN.get(hints[key], object)  # other types are up to the class's validators
        # True is an int to Python, and no number to whoever writes a file
        is_wrong_bool = isinstance(value, bool) and accepted is int
        if value is not None and (is_wrong_bool or not isinstance(value, accepted)):
            raise PluginError(f"{where}.{key}: a value of another type, {shown(value)}", "correct the file")
    missing = [key for key, field in fields.items() if field.default is attrs.NOTHING and key not in values]
    if missing:
        raise PluginError(f"{where}: {', '.join(missing)} missing", "correct the file")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        # attrs raises with the message first, and the attribute and the value after it
        raise PluginError(f"{where}: {error.args[0] if error.args else error}", "correct the file") from error
