"""Descriptions of a config class's options: name, type, default, range, help and published value."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from lw2g.config.other_names import meant_by_others
from lw2g.config.settings import OWN_SECTIONS, BackboneSource, ExperimentConfig
from lw2g.config.structure import NONE, choices_of, describe_type, unstructure
from lw2g.ground.docstrings import docstring
from lw2g.interfaces.options import UNPUBLISHED, types_of
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.kinds import place_of

__all__ = [
    "OWN_OPTIONS",
    "OptionDescription",
    "describe_experiment",
    "describe_options",
    "hint_of_places",
    "places_of",
    "plain",
]

OWN_OPTIONS: tuple[tuple[str, type[Any]], ...] = (*OWN_SECTIONS.items(), ("backbone", BackboneSource))
"""The sections with lw2g's own options, and the options that every backbone has in addition to its own."""

_NEAR = 0.8
"""How like an option's name must be one that is none."""


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
        component: The kind of component that it can name, in addition to its choices; empty for none.
    """

    name: str
    type: str
    default: Any
    range: str = ""
    help: str = ""
    published: Any = None
    choices: tuple[str, ...] = ()
    component: str = ""

    def facts(self) -> str:
        """Return type, range, default and published value."""
        facts = self.type
        if self.range:
            facts += f", {self.range}"
        facts += f"; default: {plain(self.default)}"
        if self.published is not None:
            facts += f"; published: {plain(self.published)}"
        return facts

    def sentence(self) -> str:
        """Return help and facts in one line."""
        text = f"{self.help or self.name} ({self.facts()})"
        # a plugin's help may hold anything, and the line becomes a comment of a file
        printable = "".join(char if char.isprintable() else " " for char in text)
        return " ".join(printable.split())


def plain(value: Any) -> str:
    """Return a plain value as text: text unchanged, None as ``none``, everything else as JSON."""
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    return json.dumps(value, default=str)


def describe_options(config: type[Any]) -> tuple[OptionDescription, ...]:
    """Describe the options of a config class, in the order of its fields."""
    defaults = unstructure(config())
    hints = types_of(config)
    described = []
    for field in attrs.fields(config):
        if not field.init:  # computed from others: no option
            continue
        hint = hints.get(field.name, Any)
        kind = _type_of(field, hint)
        bounds = describe_range(field.validator)
        if bounds in kind:  # a choice is described by its values already
            bounds = ""
        default = defaults[field.name]
        option = OptionDescription(
            name=field.name,
            type=kind,
            default=NONE if default is None else default,
            range=bounds,
            help=field.metadata.get("help", ""),
            published=_published(field),
            choices=field.metadata.get("own", choices_of(hint)),
            component=field.metadata.get("names", ""),
        )
        described.append(option)
    return tuple(described)


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
    described = {}
    for section, cls in (*sections, *OWN_OPTIONS):
        for option in describe_options(cls):
            described[f"{section}.{option.name}"] = option
    return described


def places_of(option: str, catalogue: Catalogue, others: Iterable[str] | None = None) -> list[str]:
    """Return the dotted keys of all options with this name, those of baselines first.

    Args:
        option: The name.
        catalogue: The components.
        others: What else may be meant. Where no option has the name, the one that is most like it is taken
            unless one of these is more so; None: there must be one of this very name.
    """
    sections = [(place_of(*entry.key), entry.component.config) for entry in catalogue.components()]
    places: dict[str, dict[str, None]] = {}  # each once: all components of a section may have the option
    for section, cls in (*sections, *OWN_OPTIONS):
        for field in attrs.fields(cls):
            if field.init:
                places.setdefault(field.name, {})[f"{section}.{field.name}"] = None
    if option not in places and others is not None:
        rivals = set(others)
        alike = difflib.get_close_matches(option, {*places, *rivals}, n=1, cutoff=_NEAR)
        option = alike[0] if alike and alike[0] not in rivals else ""
    return list(places.get(option, ()))


def places_outside(section: str, catalogue: Catalogue) -> Callable[[str], list[str]]:
    """Return what finds the dotted keys of the options of a name that are in other sections alone.

    Args:
        section: The section that has been asked for it, such as ``baseline``.
        catalogue: The components.
    """

    def find(name: str) -> list[str]:
        places = places_of(name, catalogue.whole)  # asked for a mistake alone: it imports all plugins
        # the section is right where other components of it have the option, and this one has none
        is_of_section = any(place.startswith(f"{section}.") for place in places)
        return [] if is_of_section else places

    return find


def meant_elsewhere(option: str, catalogue: Catalogue) -> str:
    """Return what an option of another library is here; empty for others, and where one here has its name.

    Args:
        option: The name, without a section.
        catalogue: The components.
    """
    meant = meant_by_others(option)
    return "" if not meant or places_of(option, catalogue) else meant


def hint_of_places(option: str, catalogue: Catalogue, others: Iterable[str] | None = None) -> str:
    """Return which options with a section may be meant by one without, in brackets; empty for none.

    Args:
        option: As for :func:`places_of`.
        catalogue: As for :func:`places_of`.
        others: As for :func:`places_of`.
    """
    places = places_of(option, catalogue, others)
    return f" (did you mean {' or '.join(map(repr, places))}?)" if places else ""


def describe_range(validator: Any) -> str:
    """Return the bounds that an attrs validator sets, in words; its parts are joined by "and".

    >>> describe_range(attrs.validators.and_(attrs.validators.gt(0), attrs.validators.le(1)))
    '> 0 and <= 1'
    """
    if validator is None:
        return ""
    # attrs exports no classes of validators: they are known by their attributes. Two names: and_, or_
    for attribute in ("_validators", "validators"):
        parts = getattr(validator, attribute, None)
        if isinstance(parts, tuple | list):
            return " and ".join(filter(None, map(describe_range, parts)))
    if hasattr(validator, "compare_op"):
        return f"{validator.compare_op} {validator.bound}"
    if hasattr(validator, "validator"):
        return describe_range(validator.validator)
    if hasattr(validator, "member_validator"):
        inner = describe_range(validator.member_validator)
        if not inner:
            return ""
        return f"each {inner}"
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
    if not hasattr(validator, "__code__"):  # the docstring of a class describes the class
        return ""
    first = docstring(validator).split("\n")[0].rstrip(".")
    return first[:1].lower() + first[1:]


def _published(field: attrs.Attribute[Any]) -> Any:
    value = field.metadata.get("published", UNPUBLISHED)
    if value is UNPUBLISHED:
        return None
    if value is None:  # as a value that was published; None says that none was
        return NONE
    return unstructure(value)
