"""Where a model lies, and what takes it further from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

__all__ = ["Home", "opened_again"]


@attrs.frozen(kw_only=True, eq=False)
class Home:
    """The folder of a model, as functions of packages that a model does not know.

    Attributes:
        source: Where it was opened, as it was named.
        folder: Where that is on this machine.
        open: Returns it once more, for another process.
        learn: As :func:`lw2g.learn`, from this folder.
        unlearn: As :func:`lw2g.unlearn`, from this folder.
        test: As :func:`lw2g.test`.
    """

    source: str
    folder: Path
    open: Callable[..., Any]
    learn: Callable[..., tuple[Any, dict[str, Any]]]
    unlearn: Callable[..., tuple[Any, dict[str, Any]]]
    test: Callable[..., dict[str, Any]]


def opened_again(
    opener: Callable[..., Any], source: str, task: int, device: str, batch_size: int | None
) -> Any:
    """Return a model that was pickled, from where it lies."""
    model = opener(task=task, device=device, batch_size=batch_size)
    model.home = attrs.evolve(model.home, source=source)
    return model
