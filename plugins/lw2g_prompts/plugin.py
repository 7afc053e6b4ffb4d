"""Registers the prompt baselines."""

from __future__ import annotations

from lw2g.interfaces.component import BaselineComponent
from lw2g.registry.markers import hookimpl
from lw2g_prompts.coda_prompt import CODA_PROMPT
from lw2g_prompts.cprompt import CPROMPT
from lw2g_prompts.dual_prompt import DUAL_PROMPT
from lw2g_prompts.hide_prompt import HIDE_PROMPT
from lw2g_prompts.l2p import L2P_COMPONENT
from lw2g_prompts.os_prompt import OS_PROMPT
from lw2g_prompts.s_prompt import S_PROMPT_PLUS_PLUS

__all__ = ["lw2g_baselines"]


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the prompt baselines."""
    return [DUAL_PROMPT, HIDE_PROMPT, S_PROMPT_PLUS_PLUS, CODA_PROMPT, OS_PROMPT, CPROMPT, L2P_COMPONENT]
