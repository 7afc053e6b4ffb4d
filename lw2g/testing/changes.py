"""What a check compares before and after: the state of modules, their wiring, predictions."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
from torch import Tensor, nn

from lw2g.files.predictions import Predictions
from lw2g.tasks.session import Session

__all__ = ["changed", "everything", "modules_of", "same_predictions", "wiring"]


def modules_of(session: Session) -> dict[str, nn.Module]:
    """Return all modules with state, by their names in messages."""
    modules: dict[str, nn.Module] = {"baseline": session.parts.baseline}
    modules |= {f"set {set_id}": session.parts.pool[set_id] for set_id in session.parts.pool.ids}
    return modules if session.parts.retrieval is None else {**modules, "retrieval": session.parts.retrieval}


def everything(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return copies of all parameters and buffers, those outside the state dict included, by full name."""
    return {
        f"{owner}.{name}": value.detach().clone()
        for owner, module in modules.items()
        for name, value in (*module.named_parameters(), *module.named_buffers())
    }


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors that were added, removed, or differ in a bit."""
    names = dict.fromkeys((*before, *after))
    return [name for name in names if not _same(before.get(name), after.get(name))]


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def wiring(module: nn.Module) -> dict[str, frozenset[str]]:
    """Return class, identity, attributes and hooks of every module of a tree, by name."""
    wires = {}
    for name, part in module.named_modules():
        facts = {f"a {type(part).__name__} at {id(part):#x}"}
        for key, value in vars(part).items():
            if key.endswith("hooks") and value:
                facts.add(f"{len(value)} in {key}")
            elif not key.startswith("_"):
                facts.add(f"attribute {key}")
        wires[name] = frozenset(facts)
    return wires


def same_predictions(first: Predictions, second: Predictions) -> bool:
    """Return whether two evaluations agree on every sample, class, task and set."""
    return all(
        np.array_equal(getattr(first, field.name), getattr(second, field.name))
        for field in attrs.fields(Predictions)
    )
