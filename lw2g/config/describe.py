"""What a config class says of its options: name, type, default, range, help and published value."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from typing import Any

import attrs

from lw2g.config.model import BackboneSource, ExperimentConfig, GrowthConfig, RoutingConfig, RunConfig
from lw2g.config.structure import NONE, describe_type, unstructure
from lw2g.interfaces.options import UNPUBLISHED
from lw2g.registry.catalogue import Catalogue

__all__ = [
    "OWN_SECTIONS",
    "OptionDescription",
    "describe_experiment",
    "describe_options",
    "places_of",
    "plain",
]

OWN_SECTIONS: Mapping[str, type[Any]] = {
    "growth": GrowthConfig,
    "routing": RoutingConfig,
    "run": RunConfig,
}
"""The sections of an experiment whose options are lw2g's own, not a component's."""


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

    def sentence(self) -> str:
        """Return all of it in one line: help, what it takes, default, published value."""
        takes = f"{self.type}, {self.range}" if self.range else self.type
        told = "" if self.published is None else f"; published: {plain(self.published)}"
        text = f"{self.help or self.name} ({takes}; default: {plain(self.default)}{told})"
        return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def plain(value: Any) -> str:
    """Return a plain value as a listing shows it: text as it is, nothing as ``none``, all else as JSON."""
    value = NONE if value is None else value
    return value if isinstance(value, str) else json.dumps(value, default=str)


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


def describe_experiment(config: ExperimentConfig) -> dict[str, OptionDescription]:
    """Describe every option of an experiment, by its dotted key."""
    sections: dict[str, type[Any]] = {"baseline": type(config.baseline.config)}
    if config.retrieval is not None:
        sections["retrieval"] = type(config.retrieval.config)
    sections["policy"] = type(config.policy.config)
    sections |= {f"evidence.{one.name}": type(one.config) for one in config.evidence}
    sections |= {f"constraints.{one.name}": type(one.config) for one in config.constraints}
    sections |= {"benchmark": type(config.benchmark.config), **OWN_SECTIONS}
    sections |= {f"trackers.{one.name}": type(one.config) for one in config.trackers}
    backbone = [("backbone", cls) for cls in (BackboneSource, type(config.backbone.config))]
    return {
        f"{section}.{option.name}": option
        for section, cls in (*sections.items(), *backbone)
        for option in describe_options(cls)
    }


def places_of(option: str, catalogue: Catalogue) -> list[str]:
    """Return the dotted keys under which an option of this name is found, those of baselines first."""
    found = []
    for entry in catalogue.components():
        kind, name = entry.key
        section = {
            "evidence": f"evidence.{name}",
            "constraint": f"constraints.{name}",
            "tracker": f"trackers.{name}",
        }.get(kind, kind)
        found.append((section, entry.component.config))
    found += [*OWN_SECTIONS.items(), ("backbone", BackboneSource)]
    return list(dict.fromkeys(f"{section}.{option}" for section, cls in found if _has(cls, option)))


def _has(cls: type[Any], option: str) -> bool:
    return any(field.name == option and field.init for field in attrs.fields(cls))


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
