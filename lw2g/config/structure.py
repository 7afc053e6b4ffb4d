"""Converts plain tables to typed option records, strictly, and reports all problems at once."""

from __future__ import annotations

import difflib
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

import attrs
import cattrs

from lw2g.config.other_names import meant_by_others
from lw2g.errors import error_text, nearest, shown
from lw2g.ground.spelling import device_name, expanded
from lw2g.interfaces.options import types_of

__all__ = [
    "NONE",
    "choices_of",
    "describe_type",
    "is_writable",
    "misfit",
    "read_plain",
    "structure",
    "unstructure",
]

T = TypeVar("T")

NONE = "none"
"""How the missing value is written in TOML, which has no null."""
_LISTED = 5
"""Options that a message names at most."""
_LONGEST = 200
"""Letters of a text that is read as a list; files of strangers have any."""
_IN_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text in quotes"}
"""Types as arguments of commands tell them."""


def structure(
    cls: type[T],
    table: Mapping[str, Any],
    *,
    beside: Iterable[str] = (),
    also_known: Iterable[str] = (),
    whose: str = "",
    elsewhere: Callable[[str], Sequence[str]] = lambda name: (),
) -> tuple[T | None, list[tuple[str, str]]]:
    """Make an option record from a plain table.

    Args:
        cls: An attrs class in which every option has a default.
        table: Option names and plain values.
        beside: Options of the same table that another record holds, for messages.
        also_known: Further names to suggest for an unknown key.
        whose: The component whose options they are, for messages.
        elsewhere: Returns the dotted keys of the options of a name in other tables.

    Returns:
        The record and no problems, or None and each problem as ``(key, message)``; the key is empty if each
        option is valid but they do not fit together.
    """
    fields = {field.alias or field.name: field for field in attrs.fields(cls) if field.init}  # type: ignore[arg-type]
    hints = types_of(cls)
    values: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    # defaults are converted like given values, so that a written file reads back equal
    for key, plain in (unstructure(cls()) | dict(table)).items():
        if key not in fields:  # a misspelt option would else silently keep its default
            options = [*fields, *beside]
            hint = nearest(key, [*options, *also_known])
            if places := elsewhere(key):
                hint = f" (did you mean {' or '.join(map(repr, places))}?)"
            elif meant := meant_by_others(key):
                hint += f"; {meant}"
            elif not hint:
                hint = f" ({_there_are(options, key)})"
            text = f"no such option{f' of {whose}' if whose else ''}{hint}"
            problems.append((key, text))
            continue
        field = fields[key]
        kind = hints.get(field.name, Any)
        if isinstance(kind, type) and attrs.has(kind):
            values[key], inner = _nested(kind, plain)
            for name, text in inner:
                problems.append((f"{key}.{name}".rstrip("."), text))
            continue
        # what nobody has given is the fault of whoever wrote the class
        of_class = "" if key in table else f" (the default of {key!r} in {cls.__module__}.{cls.__qualname__})"
        try:
            value = _converter().structure(plain, kind)
            _validate(cls, field, value)
        except cattrs.BaseValidationError as error:
            for text in cattrs.transform_error(error, path="$"):
                problems.append((key, text.replace(" @ $", " at ") + of_class))
        except (ValueError, TypeError) as error:
            problems.append((key, _message(error, field.name) + of_class))
        else:
            values[key] = value
    if problems:
        return None, problems
    try:  # a class may compare its options with each other
        return cls(**values), []
    except (ValueError, TypeError) as error:
        return None, [("", _message(error, ""))]


def _there_are(options: Sequence[str], key: str) -> str:
    """Return which options there are; of many those that are most like a key that is none.

    >>> _there_are(["lr", "clip"], "x"), _there_are([], "x")
    ('there are lr, clip', 'there are none')
    """
    if len(options) <= _LISTED:
        return f"there are {', '.join(options) or 'none'}"
    alike = difflib.get_close_matches(key, options, n=_LISTED, cutoff=0)
    return f"of {len(options)} the nearest are {', '.join(alike)}"


def _nested(kind: type[Any], plain: Any) -> tuple[Any, list[tuple[str, str]]]:
    if isinstance(plain, Mapping):
        return structure(kind, plain)
    return None, [("", f"expected a table but got {shown(plain)}")]


def read_plain(value: Any, kind: type[T]) -> T:
    """Convert plain values to an attrs class.

    Additional keys are allowed. Files of strangers come here: it ends at the first misfit, because one error
    object for each of a million values would take a thousand times the memory of the file.

    Raises:
        ValueError: They do not fit; the message names the first place.
    """
    try:
        return _reader().structure(value, kind)
    except Exception as error:  # values of any type meet converters and validators
        raise ValueError(_located(value, kind, "") or error_text(error)) from error


def misfit(value: Any, kind: type[Any]) -> str:
    """Return the first place where plain values do not fit an attrs class; empty if they fit."""
    try:
        read_plain(value, kind)
    except ValueError as error:
        return str(error)
    return ""


def _located(value: Any, kind: Any, place: str) -> str:
    """Return the first value that does not fit its type, with its place; empty if each value fits alone."""
    if _is_union(kind):
        if value is None:
            return ""
        kind = _member(kind)
    where = f" at {place}" if place else ""
    if isinstance(kind, type) and attrs.has(kind):
        if not isinstance(value, Mapping):
            return f"expected a table but got {shown(value)}{where}"
        return _located_in_record(value, kind, place)
    # item by item: the converter, which collects no errors, does not say where it stopped
    origin = typing.get_origin(kind)
    if origin is dict:
        if not isinstance(value, Mapping):
            return f"expected a table but got {shown(value)}{where}"
        _, of_values = typing.get_args(kind)
        return _first_problem(_located(item, of_values, _below(place, name)) for name, item in value.items())
    if _is_list(kind):
        if not isinstance(value, list | tuple):
            return f"expected a list but got {shown(value)}{where}"
        (of_items,) = typing.get_args(kind)
        located = (_located(item, of_items, f"{place}[{number}]") for number, item in enumerate(value))
        return _first_problem(located)
    try:
        _reader().structure(value, kind)
    except (ValueError, TypeError) as error:
        return f"{error}{where}"
    return ""


def _located_in_record(value: Mapping[str, Any], kind: Any, place: str) -> str:
    """Return the first value of a record that does not fit, or that is missing."""
    for name, hint in types_of(kind).items():
        problem = ""
        if name in value:
            problem = _located(value[name], hint, _below(place, name))
        elif name in _needed(kind):
            problem = f"no value at {_below(place, name)}"
        if problem:
            return problem
    return ""


def _first_problem(problems: Iterable[str]) -> str:
    """Return the first text that is not empty; those after it are not computed."""
    return next(filter(None, problems), "")


def _below(place: str, name: str) -> str:
    """Return the place of a value in a table; a stranger's name may be of any length."""
    return f"{place}.{name:.40}".removeprefix(".")


@cache
def _needed(kind: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in attrs.fields(kind) if field.default is attrs.NOTHING)


def unstructure(config: Any) -> dict[str, Any]:
    """Return a record as a plain table: paths become strings, tuples lists; None stays."""
    plain: dict[str, Any] = _converter().unstructure(config)
    return plain


def describe_type(kind: Any) -> str:
    """Return a type in words.

    >>> describe_type(tuple[int, ...] | None)
    "list of int or 'none'"
    """
    if kind is type(None):
        return repr(NONE)
    if kind is Path:
        return "path"
    if kind is Any:
        return "anything"
    args = typing.get_args(kind)
    if _is_literal(kind) and len(args) == 1:
        return repr(args[0])
    if _is_literal(kind):
        return "one of " + ", ".join(map(repr, args))
    if _is_union(kind):
        return " or ".join(map(describe_type, args))
    if _is_tuple(kind) and len(args) == 2 and args[1] is Ellipsis:
        return f"list of {describe_type(args[0])}"
    if _is_tuple(kind):
        return f"list of {len(args)} values: " + ", ".join(map(describe_type, args))
    if isinstance(kind, type):
        return kind.__name__
    return str(kind)


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the values of a type that has few, as a user types them.

    >>> choices_of(Literal["lda", 2] | bool | None)
    ('lda', '2', 'true', 'false', 'none')
    """
    if _is_union(kind):
        choices: list[str] = []
        for member in typing.get_args(kind):
            choices += choices_of(member)
        return tuple(choices)
    if _is_literal(kind):
        return tuple(map(str, typing.get_args(kind)))
    return {bool: ("true", "false"), type(None): (NONE,)}.get(kind, ())


def _validate(cls: type[Any], field: attrs.Attribute[Any], value: Any) -> None:
    """Run one option's converter and validator, so that its error is reported together with all others."""
    if field.converter is not None and not isinstance(field.converter, attrs.Converter):
        value = field.converter(value)
    if field.validator is not None:
        field.validator(cls(), field, value)


def _message(error: Exception, name: str) -> str:
    if not error.args:
        return type(error).__name__
    # validators of attrs begin with the option's name, which the problem's path has already
    return str(error.args[0]).removeprefix(f"'{name}' ")


def _expected(kind: Any, value: object, hint: str = "") -> ValueError:
    wanted = re.sub(r"\bof int\b", "of whole numbers", describe_type(kind)).replace("of float", "of numbers")
    for name, meant in _IN_WORDS.items():
        wanted = re.sub(rf"\b{name}\b", meant, wanted)
    if wanted.startswith("list of") and isinstance(value, str) and len(value) < _LONGEST:
        hint += _as_list(value, kind)
    return ValueError(f"expected {wanted} but got {shown(value)}{hint}")


def _as_list(text: str, kind: Any) -> str:
    """Return how a text is written as a list of a type; empty if its parts are not what that takes."""
    inner = text.strip("[] ")
    readings: list[Any] = [[part.strip(" '\"") for part in inner.split(",")]]
    with suppress(ValueError):
        readings.insert(0, json.loads(f"[{inner}]"))
    for parts in readings:
        with suppress(ValueError):
            _converter().structure(parts, kind)
            return f"; write {json.dumps(parts, ensure_ascii=False)}"
    return ""


def _member(kind: Any) -> Any:
    """Return T of ``T | None``, the only union in records."""
    (member,) = (member for member in typing.get_args(kind) if member is not type(None))
    return member


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (Union, types.UnionType)


def _is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is Literal


def _is_list(kind: Any) -> bool:
    return typing.get_origin(kind) is list


def _is_tuple(kind: Any) -> bool:
    return typing.get_origin(kind) is tuple


@cache
def _converter() -> cattrs.Converter:
    """Return a strict cattrs converter; cattrs' own hooks turn ``"3"`` and ``3.7`` into 3."""
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    _make_strict(converter)
    converter.register_structure_hook(Path, _path)
    converter.register_structure_hook_factory(_is_tuple, lambda kind: _tuple)
    converter.register_structure_hook_factory(_is_union, lambda kind: _union)
    converter.register_unstructure_hook(Path, str)
    converter.register_unstructure_hook_func(
        _is_tuple, lambda value: [converter.unstructure(item) for item in value]
    )
    return converter


@cache
def _reader() -> cattrs.Converter:
    """Return a converter for checks, which is as strict but allows unknown keys."""
    converter = cattrs.Converter(detailed_validation=False)
    _make_strict(converter)

    def optional(kind: Any) -> Any:
        """Return the hook for a type or None."""
        member = _member(kind)
        hook = converter.get_structure_hook(member)
        return lambda value, _: None if value is None else hook(value, member)

    def items(kind: Any) -> Any:
        """Return the hook for a sequence of any length, which only a list or a tuple becomes."""
        # cattrs' own takes whatever can be iterated: the letters of a word, the keys of a table
        (of_items,) = typing.get_args(kind)
        hook = converter.get_structure_hook(of_items)

        def structure_items(value: Any, _: Any) -> list[Any]:
            if not isinstance(value, list | tuple):
                raise _expected(kind, value)
            return [hook(item, of_items) for item in value]

        return structure_items

    converter.register_structure_hook_factory(_is_union, optional)
    converter.register_structure_hook_factory(_is_list, items)
    converter.register_structure_hook_factory(_is_tuple, lambda kind: _tuple)
    return converter


def _make_strict(converter: cattrs.Converter) -> None:
    for kind, hook in ((bool, _bool), (int, _int), (float, _float), (str, _str)):
        converter.register_structure_hook(kind, hook)
    converter.register_structure_hook_factory(_is_literal, lambda kind: _literal)


def _bool(value: Any, kind: Any) -> bool:
    if not isinstance(value, bool):
        raise _expected(kind, value)
    return value


def _int(value: Any, kind: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):  # to Python, True is an int
        raise _expected(kind, value)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"expected a number of 64 bits but got {shown(value)}")
    return value


def _float(value: Any, kind: Any) -> float:
    """Return a finite number; whole numbers are legal."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _expected(kind, value)
    try:
        number = float(value)
    except OverflowError:  # an int of more than 308 digits
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number but got {shown(value)}")
    return number


def _str(value: Any, kind: Any) -> str:
    value = device_name(value)
    if not isinstance(value, str):
        raise _expected(kind, value)
    return _writable(value)


def _path(value: Any, kind: Any) -> Path:
    """Return an absolute path, so that a resolved configuration means the same from any folder."""
    if not isinstance(value, str | Path) or not str(value):
        raise _expected(kind, value)
    return expanded(_writable(str(value))).absolute()


def is_writable(text: str) -> bool:
    """Return whether file names, TOML and records can hold a text: without NUL and broken UTF-8."""
    if "\0" in text:
        return False
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _writable(text: str) -> str:
    """Return a text, or refuse one that file names or TOML cannot hold."""
    if not is_writable(text):
        raise ValueError(f"expected text without NUL and broken UTF-8 but got {shown(text)}")
    return text


def _literal(value: Any, kind: Any) -> Any:
    """Return the one of some fixed values that a value is."""
    choices = typing.get_args(kind)
    for choice in choices:
        if type(choice) is type(value) and choice == value:  # True equals 1, but is no answer to it
            return choice
    hint = ""
    if isinstance(value, str):
        hint = nearest(value, [choice for choice in choices if isinstance(choice, str)])
    raise _expected(kind, value, hint)


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    """Return a list as a tuple of fixed or of any length, each item converted."""
    args = typing.get_args(kind)
    if not isinstance(value, list | tuple):
        raise _expected(kind, value)
    if len(args) == 2 and args[1] is Ellipsis:  # of any length
        args = (args[0],) * len(value)
    if len(args) != len(value):
        raise _expected(kind, value)
    try:
        return tuple(_converter().structure(item, arg) for item, arg in zip(value, args, strict=True))
    except ValueError as error:
        raise _expected(kind, value) from error


def _union(value: Any, kind: Any) -> Any:
    """Return the value of the first member that accepts it; ``none`` is None unless a Literal has it."""
    members = typing.get_args(kind)
    if type(None) in members:
        says_none = any(NONE in typing.get_args(member) for member in members if _is_literal(member))
        if value is None or (value == NONE and not says_none):
            return None
    for member in members:
        if member is type(None):
            continue
        try:
            return _converter().structure(value, member)
        except (ValueError, TypeError, cattrs.BaseValidationError):
            continue  # the error below names all members
    raise _expected(kind, value)
