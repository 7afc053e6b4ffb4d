"""What a trained model is, in a few words, for a prompt and for a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from lw2g.errors import counted

__all__ = ["facts_of", "facts_table", "in_a_line", "in_three_lines"]

_SHOWN = 10
"""Classes that are shown by name."""


def facts_of(model: Any, known: Sequence[str]) -> dict[str, str]:
    """Return what a model is, what it knows, and how it came about.

    Args:
        model: The :class:`~lw2g.model.trained.TrainedModel`.
        known: Names of its classes, without forgotten ones.
    """
    config = model.parts.config
    head = getattr(config.baseline.config, "head", None)
    method = config.baseline.name if head is None else f"{config.baseline.name} with head {head}"
    names = ", ".join([*known[:_SHOWN], *(["..."] if len(known) > _SHOWN else [])])
    learned = counted(model.task, "task")
    if model.retrieval is not None:  # without, nothing is chosen among sets
        learned += f" in {counted(len(model.sets), 'set')}"
    return {
        "method": method,
        "backbone": f"{config.backbone.name} at {model.backbone.image_size} pixels, on {model.device}",
        "knows": f"{counted(len(known), 'class')}: {names}",
        "learned": f"{learned}, from {model.home.source}" if model.home is not None else learned,
    }


def in_a_line(model: Any, known: Sequence[str]) -> str:
    """Return what a model is, and where it is from; the arguments are those of :func:`facts_of`."""
    place = "" if model.home is None else f" {model.home.source!r}"
    facts = facts_of(model, known)
    return f"<model{place}: {counted(len(known), 'class')}, {facts['method']}; {facts['backbone']}>"


def in_three_lines(model: Any, known: Sequence[str]) -> str:
    """Return the facts of a model; the arguments are those of :func:`facts_of`."""
    facts = facts_of(model, known)
    return f"TrainedModel: {facts['method']}; {facts['backbone']}\n  {facts['knows']}\n  {facts['learned']}"


def facts_table(facts: Mapping[str, str]) -> str:
    """Return facts as a table of HTML."""
    rows = (f"<tr><th>{name}</th><td>{html.escape(fact)}</td></tr>" for name, fact in facts.items())
    return f"<table>{''.join(rows)}</table>"
