"""Arguments of :func:`lw2g.run` as people write them, as names of components and options by dotted keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lw2g.api.local import GIVEN
from lw2g.errors import ConfigError, no_folder

__all__ = ["as_options"]

_SECTION_OF = {
    **dict.fromkeys(("protocol", "seed", "device", "devices", "precision"), "run"),
    **dict.fromkeys(("increment", "test_share", "order", "order_seed"), "benchmark"),
    "epochs": "baseline",
}
"""Options that may stand without their section."""


def as_options(given: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the components of a call by kind, and all options by their dotted keys.

    Args:
        given: By kind a name, an object, or ``{"name": ..., option: value}``; a benchmark may be a folder.
        options: Options by dotted keys, or by some names that stand without their section. They override
            those beside a component's name.

    Raises:
        ConfigError: A mapping has no name, or a folder is not there.
    """
    components, overrides = dict(given), dict[str, Any]()
    for kind, choice in given.items():
        if isinstance(choice, dict):
            components[kind], own = _name_and_options(kind, choice)
            overrides |= own
    components["benchmark"], place = _place_of(components["benchmark"])
    overrides |= place
    for key, value in options.items():
        overrides[f"{_SECTION_OF[key]}.{key}" if key in _SECTION_OF else key] = value
    return components, overrides


def _name_and_options(kind: str, choice: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the component of ``{"name": ..., option: value}``, and its options by dotted keys.

    Raises:
        ConfigError: It has no name.
    """
    if "name" not in choice:
        raise ConfigError(f"{kind}: {choice!r} has no name", f'write {kind}={{"name": ..., "option": ...}}')
    own = {f"{kind}.{option}": value for option, value in choice.items() if option != "name"}
    return choice["name"], own


def _place_of(benchmark: Any) -> tuple[Any, dict[str, Any]]:
    """Return the benchmark that reads a folder or a data set of the hub, and the option that names it."""
    looks_like_a_path = isinstance(benchmark, Path) or (isinstance(benchmark, str) and "/" in benchmark)
    if looks_like_a_path and (isinstance(benchmark, Path) or os.path.isdir(benchmark)):
        return "folder", {"benchmark.root": str(benchmark)}
    if looks_like_a_path:
        _require_of_the_hub(benchmark)
        return GIVEN, {"benchmark.hub": benchmark}
    if isinstance(benchmark, str) and os.path.isdir(benchmark):
        from lw2g.registry.catalogue import load_catalogue

        if benchmark not in load_catalogue().names("benchmark"):
            return "folder", {"benchmark.root": benchmark}
    return benchmark, {}


def _require_of_the_hub(name: str) -> None:
    """Refuse what can only be meant for a folder, and is none.

    Raises:
        ConfigError: It is a path, or begins with a folder that is here.
    """
    owner, _, rest = name.partition("/")
    is_a_path = "/" in rest or owner in ("", ".", "..", "~")
    if is_a_path or os.path.isdir(owner):
        raise ConfigError(
            f"benchmark: {no_folder(name)}",
            "give a folder of train/CLASS/IMAGE and test/CLASS/IMAGE, or of CLASS/IMAGE with test_share=0.2",
        )
