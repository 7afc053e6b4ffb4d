"""What modules hold, copied and compared to the bit; and the second moment of some rows."""

from __future__ import annotations

from torch import Tensor, equal, nn

from lw2g.maths.moments import SecondMoment

__all__ = ["moment_of", "same", "state"]


def moment_of(rows: Tensor, heads: int = 1) -> SecondMoment:
    """Return the second moment of all rows at once."""
    moment = SecondMoment(rows.shape[-1], heads)
    moment.update(rows)
    return moment


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
