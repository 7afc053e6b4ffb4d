"""What a config class says of its options: name, type, default, range, help and published value."""

from __future__ import annotations

import typing
from typing import Any

import attrs

from lw2g.config.structure import NONE, describe_type, unstructure
from lw2g.interfaces.options import UNPUBLISHED

__all__ = ["OptionDescription", "describe_options"]


@attrs.frozen(kw_only=True)
class OptionDescription:
    """One option as a listing shows it.

    Attributes:
        name: The key.
        type: What it takes, in words.
        default: Plain default value.
        range: Bounds, in words; empty for none.
        help: One line.
        published: Plain value of the published method; None where there is none.
    """

    name: str
    type: str
    default: Any
    range: str = ""
    help: str = ""
    published: Any = None


def describe_options(config: type[Any]) -> tuple[OptionDescription, ...]:
    """Describe the options of a config class, in the order of its fields."""
    defaults = unstructure(config())
    hints = typing.get_type_hints(config)
    return tuple(
        OptionDescription(
            name=field.name,
            type=(kind := describe_type(hints.get(field.name, Any))),
            default=NONE if defaults[field.name] is None else defaults[field.name],
            range="" if (bounds := describe_range(field.validator)) in kind else bounds,
            help=field.metadata.get("help", ""),
            published=_published(field),
        )
        for field in attrs.fields(config)
        if field.init
    )


def describe_range(validator: Any) -> str:
    """Return the bounds that an attrs validator sets, in words; its parts are joined by "and".

    >>> describe_range(attrs.validators.and_(attrs.validators.gt(0), attrs.validators.le(1)))
    '> 0 and <= 1'
    """
    if validator is None:
        return ""
    for attribute in ("_validators", "validators"):
        parts = getattr(validator, attribute, None)
        if isinstance(parts, tuple | list):
            return " and ".join(text for text in map(describe_range, parts) if text)
    if hasattr(validator, "compare_op"):
        return f"{validator.compare_op} {validator.bound}"
    if hasattr(validator, "validator"):
        return describe_range(validator.validator)
    if hasattr(validator, "member_validator"):
        inner = describe_range(validator.member_validator)
        return f"each {inner}" if inner else ""
    if hasattr(validator, "options"):
        return "one of " + ", ".join(map(repr, validator.options))
    for attribute, words in (("min_length", "at least {} long"), ("max_length", "at most {} long")):
        if hasattr(validator, attribute):
            return words.format(getattr(validator, attribute))
    if hasattr(validator, "pattern"):
        return f"matching {validator.pattern.pattern}"
    return _words_of_function(validator)


def _words_of_function(validator: Any) -> str:
    """A validator that is a plain function says its range in the first line of its docstring."""
    text = (getattr(validator, "__doc__", None) or "") if hasattr(validator, "__code__") else ""
    first = text.strip().split("\n")[0].rstrip(".")
    return first[:1].lower() + first[1:]


def _published(field: attrs.Attribute[Any]) -> Any:
    value = field.metadata.get("published", UNPUBLISHED)
    if value is UNPUBLISHED:
        return None
    plain = unstructure(value)
    return NONE if plain is None else plain
