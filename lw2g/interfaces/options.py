"""Options of a component's config class: default, help, range, and the published value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

__all__ = ["UNPUBLISHED", "Role", "option", "options_of_role", "published_differences"]

Role = Literal["machine", "shown", "protocol"]
"""What an option is, where it is not simply part of what is learned (see :func:`option`)."""

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
    role: Role | None = None,
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
        role: ``"machine"``: says where and how it is computed, and no result depends on it; ``"shown"``: asks
            for a further result, and no other one depends on it; ``"protocol"``, of a benchmark: part of the
            training transform, which the hash of the run's protocol covers.
    """
    metadata: dict[str, Any] = {"help": help}
    if published is not UNPUBLISHED:
        metadata["published"] = published
    if literal:
        metadata["literal"] = dict(literal)
    if names is not None:
        metadata |= {"names": names, "own": own, "wrapped": wrapped}
    if role is not None:
        metadata["role"] = role
    return attrs.field(default=default, validator=validator, converter=converter, metadata=metadata)


def options_of_role(config_class: type[Any], *roles: Role | None) -> list[str]:
    """Return the names of the options of a config class that have one of some roles; None: no role."""
    return [field.name for field in attrs.fields(config_class) if field.metadata.get("role") in roles]


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
            note = literal.get(published, "differs from the published method")
            differences.append({"option": name, "value": value, "published": published, "note": note})
        # a value of another type may not be hashable
        if isinstance(value, (str, bool, int)) and value in literal:
            differences.append({"option": name, "value": value, "published": None, "note": literal[value]})
    return differences
