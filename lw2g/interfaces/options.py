"""Options of a component's config class: default, help, range, and the published value."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

import attrs

__all__ = [
    "ROLES",
    "UNCOUNTED",
    "UNPUBLISHED",
    "Role",
    "batch_size_of",
    "idle_options",
    "option",
    "options_of_role",
    "published_differences",
    "role_of",
    "types_of",
]

Role = Literal["learned", "batch", "protocol", "draw", "machine", "shown", "title", "fingerprint"]
ROLES: tuple[Role, ...] = get_args(Role)
"""What an option is (see :func:`option`)."""
UNCOUNTED: tuple[Role, ...] = ("machine", "shown", "title", "fingerprint")
"""Roles of options that change no number of a run, or none that its fingerprints do not show."""

UNPUBLISHED: Any = object()
"""Marks an option for which the method's authors published no value."""


def option(
    default: Any,
    help: str,
    *,
    validator: Any = None,
    converter: Callable[[Any], Any] | None = None,
    published: Any = UNPUBLISHED,
    literal: Mapping[Any, str] | None = None,
    names: str | None = None,
    own: tuple[str, ...] = (),
    wrapped: bool = False,
    only: Mapping[str, Container[Any]] | None = None,
    unless: Mapping[str, Container[Any]] | None = None,
    on_reuse: bool = False,
    role: Role = "learned",
) -> Any:
    """Declare one option of a config class.

    Args:
        default: The default value.
        help: One line for ``lw2g plugins NAME``.
        validator: An attrs validator; its bounds are shown as the option's range.
        converter: A light converter such as ``tuple``.
        published: The value of the published method, if it has a definite one. A run with another value lists
            the option in its record's ``deviations``.
        literal: Values that reproduce a known flaw of the paper or its release, each with the reason. A run
            with such a value lists it in ``deviations``. If the published figures come from such a value, it
            is ``published`` as well, and a run with the corrected value lists that.
        names: The kind of component that the option names, such as ``"head"``; its type is then ``str``.
        own: With ``names``, further values, which name no component.
        wrapped: With ``names``, that it counts only where another option names a component that wraps one.
        only: Values of other options of the class, by their names, beside which alone it is read, such as
            ``{"schedule": ("step",)}``. Who sets it beside others is told that nothing reads it.
        unless: Likewise values beside any of which nothing reads it.
        on_reuse: Of a baseline: whether it counts only where a task goes on with a set of others. Who sets it
            where no task does is told that nothing reads it.
        role: What it is, which reports, protocols, continued runs and rehearsals ask. ``"learned"``: part of
            what is learned, or of what it is learned from. ``"batch"``: that, and the images per step of
            training. ``"protocol"``, of a benchmark: part of the training transform, which the hash of the
            run's protocol covers. ``"draw"``: which of many equal draws, such as a seed or a class order;
            rows of a report are means over them. ``"machine"``: where something lies, or where and how it is
            computed; no result depends on it. ``"shown"``: asks for a further result, and no other one
            depends on it. ``"title"``, of a benchmark whose data are the user's own: what reports call
            these; else they are called by where they lie. ``"fingerprint"``: what the fingerprints of data
            and backbone cover, so that those are compared.
    """
    metadata: dict[str, Any] = {"help": help}
    if published is not UNPUBLISHED:
        metadata["published"] = published
    if literal:
        metadata["literal"] = dict(literal)
    if names is not None:
        metadata |= {"names": names, "own": own, "wrapped": wrapped}
    if only:
        metadata["only"] = dict(only)
    if unless:
        metadata["unless"] = dict(unless)
    if on_reuse:
        metadata["on_reuse"] = True
    if role != "learned":
        metadata["role"] = role
    return attrs.field(default=default, validator=validator, converter=converter, metadata=metadata)


def idle_options(config: Any) -> dict[str, str]:
    """Return the options that nothing reads beside the others, as they declare it (``only``, ``unless``).

    Returns:
        By the option's name what to say of it, such as ``"is not read: schedule=constant"``.
    """
    idle: dict[str, str] = {}
    for field in attrs.fields(type(config)):
        hindered = [(other, values, True) for other, values in field.metadata.get("unless", {}).items()]
        hindered += [(other, values, False) for other, values in field.metadata.get("only", {}).items()]
        for other, values, within in hindered:
            value = getattr(config, other)
            if (value in values) is within:
                text = value if isinstance(value, str) else json.dumps(value, default=str)
                idle.setdefault(field.name, f"is not read: {other}={text}")
    return idle


def role_of(field: attrs.Attribute[Any]) -> Role:
    """Return the role of a field of a config class."""
    role: Role = field.metadata.get("role", "learned")
    return role


def options_of_role(config_class: type[Any], *roles: Role) -> list[str]:
    """Return the names of the options of a config class that have one of some roles."""
    return [field.name for field in attrs.fields(config_class) if role_of(field) in roles]


def batch_size_of(config: Any) -> int | None:
    """Return the images per step of training, by the option of role ``"batch"``; None without one."""
    names = options_of_role(type(config), "batch")
    if not names:
        return None
    size: int | None = getattr(config, names[0])
    return size


def published_differences(config: Any, path: str) -> list[dict[str, Any]]:
    """Return the options of ``config`` that differ from the published method or have a literal value.

    Returns:
        One mapping ``{option, value, published, note}`` each; ``published`` is None for literal variants.
    """
    differences: list[dict[str, Any]] = []
    for field in attrs.fields(type(config)):
        value = getattr(config, field.name)
        name = f"{path}.{field.name}"
        published = field.metadata.get("published", UNPUBLISHED)
        literal = field.metadata.get("literal", {})
        if published is not UNPUBLISHED and value != published:
            # where the published value is itself a known flaw, its reason says why one would differ from it
            note = literal.get(published, "differs from the published method")
            differences.append({"option": name, "value": value, "published": published, "note": note})
        # a value of another type may not be hashable
        if isinstance(value, (str, bool, int)) and value in literal:
            differences.append({"option": name, "value": value, "published": None, "note": literal[value]})
    return differences


def types_of(config: Any) -> Mapping[str, Any]:
    """Return the type of each option of a config class, or of each field of another one."""
    return _types_of(config)


@cache  # resolving annotations takes most of the time in which plugins are loaded
def _types_of(config: Any) -> Mapping[str, Any]:
    return get_type_hints(config)
