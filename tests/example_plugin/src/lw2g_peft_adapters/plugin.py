"""Registers the baseline; the entry point in ``pyproject.toml`` names this module."""

from __future__ import annotations

from lw2g.interfaces.component import BaselineComponent
from lw2g.registry.markers import hookimpl
from lw2g_peft_adapters.component import PEFT_LORA

__all__ = ["lw2g_baselines"]


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the baseline."""
    return [PEFT_LORA]
