"""Tables of facts as TOML beside a plugin's code, checked when they are read. Imports no torch."""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, TypeVar

import attrs

from lw2g.errors import PluginError, nearest, shown

__all__ = ["make_record", "read_table"]

T = TypeVar("T")
_PLAIN: Mapping[Any, Any] = {
    kind: accepted
    for plain, accepted in ((str, str), (bool, bool), (int, int), (float, (int, float)))
    for kind in (plain, plain | None)
}


def read_table(package: str, file: str) -> dict[str, Any]:
    """Return the content of a TOML file in a package.

    Raises:
        PluginError: The file is missing or is not TOML; the message names it.
    """
    try:
        return tomllib.loads((files(package) / file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
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
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()} | made
    fields, hints = attrs.fields_dict(cls), typing.get_type_hints(cls)  # type: ignore[arg-type]
    for key, value in values.items():
        if key not in fields:
            raise PluginError(f"{where}.{key}: no such key{nearest(key, fields)}", "correct the file")
        kind: Any = _PLAIN.get(hints[key], object)
        if value is not None and (not isinstance(value, kind) or (kind is int and value in (True, False))):
            raise PluginError(f"{where}.{key}: a value of another type, {shown(value)}", "correct the file")
    missing = [key for key, field in fields.items() if field.default is attrs.NOTHING and key not in values]
    if missing:
        raise PluginError(f"{where}: {', '.join(missing)} missing", "correct the file")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise PluginError(f"{where}: {error.args[0] if error.args else error}", "correct the file") from error
