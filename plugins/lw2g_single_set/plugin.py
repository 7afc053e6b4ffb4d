"""Registers the baselines that never grow."""

from __future__ import annotations

from lw2g.interfaces.component import BaselineComponent
from lw2g.registry.markers import hookimpl
from lw2g_single_set.controls import JOINT, NO_PROMPT, SIMPLE_CIL

__all__ = ["lw2g_baselines"]


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the control baselines."""
    return [JOINT, NO_PROMPT, SIMPLE_CIL]
