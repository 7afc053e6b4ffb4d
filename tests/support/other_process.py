"""What another process does with a model that it was given."""

from __future__ import annotations

from typing import Any

__all__ = ["answer_of"]


def answer_of(model: Any, images: Any) -> list[dict[str, Any]]:
    """Return a model's answers."""
    answers: list[dict[str, Any]] = model.predict(images, top_k=3)
    return answers
