"""Descriptions of a config class's options: name, type, default, range, help and published value."""

from __future__ import annotations

import json
import typing
from typing import Any

import attrs

from lw2g.config.model import OWN_SECTIONS, BackboneSource, ExperimentConfig
from lw2g.config.structure import NONE, choices_of, describe_type, unstructure
from lw2g.interfaces.options import UNPUBLISHED
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.kinds import place_of

__all__ = [
    "OWN_OPTIONS",
    "OptionDescription",
    "describe_experiment",
    "describe_options",
    "places_of",
    "plain",
]

OWN_OPTIONS: tuple[tuple[str, type[Any]], ...] = (*OWN_SECTIONS.items(), ("backbone", BackboneSource))
"""The sections with lw2g's own options, and the options that every backbone has beside its own."""


@attrs.frozen(kw_only=True)
class OptionDescription:
    """One option in a listing.

    Attributes:
        name: The key.
        type: Its type, in words.
        default: Plain default value.
        range: Bounds, in words; empty for none.
        help: One line.
        published: Plain value of the published method; None if there is none.
        choices: Its values as text, if there are few.
        component: The kind of component that it names, beside its choices; empty if it names none.
    """

    name: str
    type: str
    default: Any
    range: str = ""
    help: str = ""
    published: Any = None
    choices: tuple[str, ...] = ()
    component: str = ""

    def texts(self) -> tuple[str, ...]:
        """Return name, type, default, range, published value and help as cells of a table."""
        published = "" if self.published is None else plain(self.published)
        return self.name, self.type, plain(self.default), self.range, published, self.help

    def sentence(self) -> str:
        """Return help, type, range, default and published value in one line."""
        takes = f"{self.type}, {self.range}" if self.range else self.type
        published = "" if self.published is None else f"; published: {plain(self.published)}"
        text = f"{self.help or self.name} ({takes}; default: {plain(self.default)}{published})"
        return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def plain(value: Any) -> str:
    """Return a plain value as text: text unchanged, None as ``none``, everything else as JSON."""
    value = NONE if value is None else value
    return value if isinstance(value, str) else json.dumps(value, default=str)


def describe_options(config: type[Any]) -> tuple[OptionDescription, ...]:
    """Describe the options of a config class, in the order of its fields."""
    defaults = unstructure(config())
    hints = typing.get_type_hints(config)
    return tuple(
        OptionDescription(
            name=field.name,
            type=(kind := _type_of(field, hints.get(field.name, Any))),
            default=NONE if defaults[field.name] is None else defaults[field.name],
            range="" if (bounds := describe_range(field.validator)) in kind else bounds,
            help=field.metadata.get("help", ""),
            published=_published(field),
            choices=field.metadata.get("own", choices_of(hints.get(field.name, Any))),
            component=field.metadata.get("names", ""),
        )
        for field in attrs.fields(config)
        if field.init
    )


def _type_of(field: attrs.Attribute[Any], hint: Any) -> str:
    """Return the type of an option in words; of one that names a component, its kind."""
    kind = field.metadata.get("names")
    if kind is None:
        return describe_type(hint)
    return " or ".join([f"name of a {kind}", *map(repr, field.metadata["own"])])


def describe_experiment(config: ExperimentConfig) -> dict[str, OptionDescription]:
    """Describe every option of an experiment, by its dotted key."""
    sections = [
        (place_of(kind, component.name), type(component.config)) for kind, component in config.chosen()
    ]
    return {
        f"{section}.{option.name}": option
        for section, cls in (*sections, *OWN_OPTIONS)
        for option in describe_options(cls)
    }


def places_of(option: str, catalogue: Catalogue) -> list[str]:
    """Return the dotted keys of all options with this name, those of baselines first."""
    sections = [(place_of(*entry.key), entry.component.config) for entry in catalogue.components()]
    places = (
        f"{section}.{option}"
        for section, cls in (*sections, *OWN_OPTIONS)
        if any(field.name == option and field.init for field in attrs.fields(cls))
    )
    return list(dict.fromkeys(places))


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
    """Return the first line of a function's docstring, where a plain validator states its range."""
    text = (getattr(validator, "__doc__", None) or "") if hasattr(validator, "__code__") else ""
    first = text.strip().split("\n")[0].rstrip(".")
    return first[:1].lower() + first[1:]


def _published(field: attrs.Attribute[Any]) -> Any:
    value = field.metadata.get("published", UNPUBLISHED)
    if value is UNPUBLISHED:
        return None
    plain = unstructure(value)
    return NONE if plain is None else plain
