"""Where a model lies, and what takes it further from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

__all__ = ["Home", "opened_again", "refuse_elsewhere"]

_ELSEWHERE = {
    "export": "lw2g.export_onnx({folder!r}, FILE), or lw2g export on the command line",
    "fit": "learn(FOLDER)",
    "predict_proba": "predict(IMAGES, top_k=len(model.known)) names each class with its probability",
    "save": "it lies in {folder!r}: copy that folder",
    "show": "print(model), or lw2g show on the command line",
    "teach": "learn(FOLDER), or lw2g teach on the command line",
}
"""What a program may call a method, and what does it."""


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


def refuse_elsewhere(name: str, home: Home | None) -> None:
    """Refuse a method that a model does not have, where something else does it.

    Raises:
        AttributeError: It is such.
    """
    if name in _ELSEWHERE:
        folder = "MODEL" if home is None else str(home.folder)
        raise AttributeError(f"a model has no {name!r}; {_ELSEWHERE[name].format(folder=folder)}") from None
