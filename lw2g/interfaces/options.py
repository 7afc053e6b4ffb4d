"""How a component's config class declares its options: default, help, range, and what was published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

__all__ = ["UNPUBLISHED", "option", "published_differences"]

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
) -> Any:
    """Declare one option of a config class.

    Args:
        default: The value used when nothing is said.
        help: One line for ``lw2g plugins NAME``.
        validator: An attrs validator; its bounds are shown as the option's range.
        converter: A light converter such as ``tuple``.
        published: The value of the published method, where it has a definite one. A run that uses
            another value lists the option in its record's ``deviations``.
        literal: Values that reproduce a paper's or a release's letter against better knowledge, with the
            reason; a run that uses one lists it in ``deviations``. Where the published figures come from
            such a value, it is ``published`` too: then a run with the repaired one lists that.
    """
    metadata: dict[str, Any] = {"help": help}
    if published is not UNPUBLISHED:
        metadata["published"] = published
    if literal:
        metadata["literal"] = dict(literal)
    return attrs.field(default=default, validator=validator, converter=converter, metadata=metadata)


def published_differences(config: Any, path: str) -> list[dict[str, Any]]:
    """List the options of ``config`` that differ from the published method or are literal variants.

    Returns:
        One mapping ``{option, value, published, note}`` each; ``published`` is None for literal variants.
    """
    found: list[dict[str, Any]] = []
    for field in attrs.fields(type(config)):
        value = getattr(config, field.name)
        name = f"{path}.{field.name}"
        published = field.metadata.get("published", UNPUBLISHED)
        literal = field.metadata.get("literal", {})
        if published is not UNPUBLISHED and value != published:
            note = literal.get(published, "differs from the published method")
            found.append({"option": name, "value": value, "published": published, "note": note})
        if isinstance(value, (str, bool, int)) and value in literal:
            found.append({"option": name, "value": value, "published": None, "note": literal[value]})
    return found
