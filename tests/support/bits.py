"""What modules hold, copied and compared to the bit."""

from __future__ import annotations

from torch import Tensor, equal, nn

__all__ = ["same", "state"]


def state(*modules: nn.Module) -> dict[str, Tensor]:
    """Return a copy of everything that some modules hold, by their place and its name."""
    return {
        f"{place}.{name}": value.clone()
        for place, module in enumerate(modules)
        for name, value in module.state_dict().items()
    }


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two copies hold the same names and bits."""
    return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
