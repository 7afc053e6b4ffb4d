"""Registers the prompt baselines; their code is imported when one is built."""

from __future__ import annotations

from lw2g.plugin import (
    NEW_SETS_MERGED,
    UNSEEN_MASKED,
    Alias,
    BaselineComponent,
    Deviation,
    PresetFile,
    hookimpl,
    lazy,
)
from lw2g_prompts import options

__all__ = [
    "CODA_PROMPT",
    "CPROMPT",
    "DUAL_PROMPT",
    "HIDE_PROMPT",
    "L2P",
    "OS_PROMPT",
    "S_PROMPT_PLUS_PLUS",
    "lw2g_baselines",
]

_PRESETS = PresetFile("lw2g_prompts")

_VALUES_FREE = Deviation(
    topic="sites.values",
    value="neither measured nor projected",
    published="part of the prompt",
    note="the paper speaks of prompt and key, its code takes the key half: values multiply no activation",
    when="spaces",
)
_SHARED_SPACE = Deviation(
    topic="sites.g_prompt",
    value="one space for the whole run, kept from task 2 on",
    published="the reused set's own space, kept when a set is reused",
    note="every old set depends on the G-prompt, which the released code leaves free when it grows",
    when="spaces",
)
_NO_DECAY = Deviation(
    topic="baseline.weight_decay",
    value="not for reused sets",
    published="for the set of every task",
    note="decay moves a reused set inside the space of its old tasks",
    when="reuse",
)

CODA_PROMPT = BaselineComponent(
    name="coda-prompt",
    config=options.CodaPromptConfig,
    summary="sums of components weighed by a masked query; every set adds components",
    citation="Smith et al., CODA-Prompt: Continual Decomposed Attention-based Prompting, CVPR 2023",
    build=lazy("lw2g_prompts.coda_prompt:CodaPrompt"),
    presets=_PRESETS.official("coda-prompt"),
    tuned=_PRESETS.tuned("coda-prompt"),
    deviations=(_VALUES_FREE,),
)

CPROMPT = BaselineComponent(
    name="cprompt",
    config=options.CPromptConfig,
    summary="pairs of prompts; classifiers kept consistent and trained under randomly drawn sets",
    citation="Gao et al., Consistent Prompting for Rehearsal-Free Continual Learning, CVPR 2024",
    build=lazy("lw2g_prompts.cprompt:CPrompt"),
    query_sites=False,
    retrieval="class-keys",
    presets=_PRESETS.official("cprompt"),
    tuned=_PRESETS.tuned("cprompt"),
    deviations=(_NO_DECAY,),
)

DUAL_PROMPT = BaselineComponent(
    name="dual-prompt",
    config=options.DualPromptConfig,
    summary="a shared G-prompt in shallow blocks and one E-prompt per set in deeper ones",
    citation="Wang et al., DualPrompt: Complementary Prompting for Rehearsal-free CL, ECCV 2022",
    build=lazy("lw2g_prompts.dual_prompt:DualPrompt"),
    retrieval="key-cosine",
    presets=_PRESETS.official("dual-prompt"),
    tuned=_PRESETS.tuned("dual-prompt"),
    deviations=(UNSEEN_MASKED, _VALUES_FREE, _SHARED_SPACE),
)

HIDE_PROMPT = BaselineComponent(
    name="hide-prompt",
    config=options.HidePromptConfig,
    summary="prompt sets with ensemble and contrastive term; classifiers corrected by replay",
    citation="Wang et al., Hierarchical Decomposition of Prompt-Based Continual Learning, NeurIPS 2023",
    build=lazy("lw2g_prompts.hide_prompt:HidePrompt"),
    retrieval="classifier",
    presets=_PRESETS.official("hide-prompt"),
    tuned=_PRESETS.tuned("hide-prompt"),
    deviations=(UNSEEN_MASKED, _VALUES_FREE, NEW_SETS_MERGED),
)

L2P = BaselineComponent(
    name="l2p",
    config=options.L2PConfig,
    summary="one pool of prompts for all tasks; every image selects a few by their keys",
    citation="Wang et al., Learning to Prompt for Continual Learning, CVPR 2022",
    build=lazy("lw2g_prompts.l2p:L2P"),
    query_sites=False,
    growth="fixed",
    presets=_PRESETS.official("l2p"),
    tuned=_PRESETS.tuned("l2p"),
    deviations=(UNSEEN_MASKED,),
)

OS_PROMPT = BaselineComponent(
    name="os-prompt",
    config=options.OsPromptConfig,
    summary="sums of components weighed by the class token entering each block: one forward per image",
    citation="Kim et al., One-stage Prompt-based Continual Learning, ECCV 2024",
    build=lazy("lw2g_prompts.os_prompt:OsPrompt"),
    presets=_PRESETS.official("os-prompt"),
    tuned=_PRESETS.tuned("os-prompt"),
    deviations=(_VALUES_FREE,),
)

S_PROMPT_PLUS_PLUS = BaselineComponent(
    name="s-prompt-plus-plus",
    config=options.SPromptPlusPlusConfig,
    summary="one independent prefix per set in the first five blocks",
    citation="Wang et al., S-Prompts Learning with Pre-trained Transformers, NeurIPS 2022",
    build=lazy("lw2g_prompts.s_prompt:SPromptPlusPlus"),
    retrieval="key-cosine",
    presets=_PRESETS.official("s-prompt-plus-plus"),
    tuned=_PRESETS.tuned("s-prompt-plus-plus"),
    aliases=(
        Alias(
            name="s-prompts",
            differs="in the class-incremental form that HiDe-Prompt compares with, which finds a prompt by "
            "its key; published: for domains, by the nearest of K-means centres",
        ),
    ),
    deviations=(UNSEEN_MASKED, _VALUES_FREE),
)


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the prompt baselines."""
    return [DUAL_PROMPT, HIDE_PROMPT, S_PROMPT_PLUS_PLUS, CODA_PROMPT, OS_PROMPT, CPROMPT, L2P]
