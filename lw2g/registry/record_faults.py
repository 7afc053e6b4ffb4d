"""What is wrong with a component's record, before anything of it is used."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from lw2g.interfaces.component import Component
from lw2g.interfaces.metric import CORE_METRICS
from lw2g.interfaces.options import types_of

__all__ = ["fault_of"]

_RESERVED: Mapping[str, frozenset[str]] = {"backbone": frozenset({"name", "weights", "image_size"})}


def fault_of(component: Component) -> str | None:
    """Return what is wrong with a record itself, or None."""
    label = f"registers {component.kind} {component.name!r}"
    if ":" in component.name:
        return f"{label}, a name with a prefix that lw2g alone gives"
    if component.kind == "metric" and component.name in CORE_METRICS:
        return f"{label}, a name that lw2g has itself"
    for text in ("summary", "citation"):
        if not isinstance(getattr(component, text), str):
            return f"{label} with a {text} that is no text: {getattr(component, text)!r}"
    if not callable(getattr(component, "build", None)):
        return f"{label} with a build that cannot be called"
    config = component.config
    if not (isinstance(config, type) and attrs.has(config)):
        return f"{label} with the config {config!r}, which is no attrs class{_decorated(config)}"
    label += f" whose config {config.__name__}"
    try:  # what lw2g describes and completes are defaults
        default: Any = config()
    except (TypeError, ValueError) as error:
        return f"{label} cannot be made from defaults alone{_option_of(error)}: {error}"
    if not _is_frozen(default):
        return f"{label} is not frozen{_decorated(config)}"
    try:
        types = types_of(config)
    except (NameError, TypeError, AttributeError) as error:
        return f"{label} has a type that cannot be resolved: {error}"
    if untyped := sorted(attrs.fields_dict(config).keys() - types.keys()):
        return f"{label} has options without a type: {', '.join(untyped)} (write NAME: int = option(...))"
    # in a configuration the name of a component is in one table with its options
    reserved = _RESERVED.get(component.kind, frozenset({"name"}))
    clashing = sorted(reserved & attrs.fields_dict(config).keys())
    if clashing:
        return f"{label} uses reserved option names: {', '.join(clashing)}"
    return None


def _decorated(config: Any) -> str:
    """Return which decorator a class of a plugin lacks, and where; empty for what is no such class."""
    try:
        place = f"{Path(inspect.getfile(config)).name}:{inspect.getsourcelines(config)[1]}"
    except (OSError, TypeError):  # of Python itself, or no class
        return ""
    return f"; put `@attrs.frozen(kw_only=True)` above it ({place})"


def _option_of(error: BaseException) -> str:
    """Return which option the validator that raised an error looked at; empty if it was none, or says so."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, attrs.Attribute) and repr(value.name) not in str(error):
                return f", option {value.name!r}"
    return ""


def _is_frozen(value: Any) -> bool:
    """Whether an instance of an attrs class, which may be modified, refuses assignment."""
    fields = attrs.fields(type(value))
    name = fields[0].name if fields else "anything"  # a frozen class refuses a name that it has not, too
    try:
        setattr(value, name, None)
    except attrs.exceptions.FrozenInstanceError:
        return True
    except (AttributeError, TypeError, ValueError):
        return False
    return False
