"""Registers the baselines that never grow."""

from __future__ import annotations

from lw2g.interfaces.component import BaselineComponent
from lw2g.registry.markers import hookimpl
from lw2g_single_set.aper import APER_ADAPTER, APER_VPT_DEEP
from lw2g_single_set.controls import JOINT, NO_PROMPT, SIMPLE_CIL
from lw2g_single_set.one_prompt import ONE_PROMPT

__all__ = ["lw2g_baselines"]


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the single-set methods and the control baselines."""
    return [APER_ADAPTER, APER_VPT_DEEP, JOINT, NO_PROMPT, ONE_PROMPT, SIMPLE_CIL]
