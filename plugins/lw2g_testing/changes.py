"""What a check compares before and after: the state of modules, their wiring, predictions."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import torch
from torch import Tensor, nn

from lw2g.disk.predictions import Predictions
from lw2g.learning.session import Session

__all__ = [
    "changed",
    "everything",
    "flags",
    "modules_of",
    "numbers_of",
    "plain_tensors",
    "same_predictions",
    "wiring",
]


def modules_of(session: Session) -> dict[str, nn.Module]:
    """Return all modules with state, by their names in messages."""
    modules: dict[str, nn.Module] = {"baseline": session.parts.baseline}
    for set_id in session.parts.pool.ids:
        modules[f"set {set_id}"] = session.parts.pool[set_id]
    if session.parts.retrieval is not None:
        modules["retrieval"] = session.parts.retrieval
    return modules


def everything(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return copies of all parameters and buffers, those outside the state dict included, by full name."""
    state = {}
    for owner, module in modules.items():
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            state[f"{owner}.{name}"] = value.detach().clone()
    return state


def numbers_of(modules: Mapping[str, nn.Module]) -> dict[str, str]:
    """Return the numbers that are plain attributes of modules, which no checkpoint holds, by full name."""
    numbers = {}
    for owner, module in modules.items():
        for path, part in module.named_modules(prefix=owner):
            for name, value in vars(part).items():
                if type(value) in (int, float):
                    numbers[f"{path}.{name}"] = repr(value)
    return numbers


def plain_tensors(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return the tensors that are plain attributes of modules, which no checkpoint holds, by full name."""
    tensors = {}
    for owner, module in modules.items():
        for path, part in module.named_modules(prefix=owner):
            for name, value in vars(part).items():
                if isinstance(value, Tensor):
                    tensors[f"{path}.{name}"] = value
    return tensors


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors that were added, removed, or differ in a bit."""
    names = dict.fromkeys((*before, *after))
    return [name for name in names if not _same(before.get(name), after.get(name))]


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())  # NaN is the same as NaN


def flags(modules: Mapping[str, nn.Module]) -> dict[str, object]:
    """Return the generator, the modes of modules and the flags of parameters, by their names in messages."""
    state: dict[str, object] = {"torch's global generator": torch.get_rng_state().tolist()}
    for owner, module in modules.items():
        for name, part in module.named_modules():
            state[f"mode of {owner}.{name}"] = part.training
        for name, parameter in module.named_parameters():
            flags_of_parameter = (parameter.requires_grad, parameter.grad is None)
            state[f"requires_grad or grad of {owner}.{name}"] = flags_of_parameter
    return state


def wiring(module: nn.Module) -> dict[str, frozenset[str]]:
    """Return class, identity, attributes and hooks of every module of a tree, by name."""
    wires = {}
    for name, part in module.named_modules():
        # by identity: a module put in another's place may be equal to it
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
