"""Registers the low-rank baselines."""

from __future__ import annotations

from lw2g.interfaces.component import BaselineComponent
from lw2g.registry.markers import hookimpl
from lw2g_lora.c_lora import C_LORA
from lw2g_lora.hide_lora import HIDE_LORA
from lw2g_lora.inflora import INFLORA

__all__ = ["lw2g_baselines"]


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the low-rank baselines."""
    return [C_LORA, INFLORA, HIDE_LORA]
