"""S-Prompt++: one independent prefix per set in the first five blocks, nothing shared but the head.

Wang et al., "S-Prompts Learning with Pre-trained Transformers", NeurIPS 2022, in the class-incremental form
that HiDe-Prompt (NeurIPS 2023) compares with. It is DualPrompt without the G-prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs.validators import ge

from lw2g.blocks.prefixes import PrefixBaseline, PrefixOptions
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.options import option
from lw2g.interfaces.phase import Phase

__all__ = ["S_PROMPT_PLUS_PLUS", "SPromptPlusPlus", "SPromptPlusPlusConfig"]


@attrs.frozen(kw_only=True)
class SPromptPlusPlusConfig(PrefixOptions):
    """Options of ``s-prompt-plus-plus``."""

    length: int = option(20, "prefix tokens per block", validator=ge(1), published=20)


class SPromptPlusPlus(PrefixBaseline):
    """A set is the prefix of all its blocks; the retrieval strategy does the rest."""

    feature_scope = "set"

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: prefix and head together."""
        return (self.prompt_phase(context),)


# LW2G published neither energies nor phi for this method
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "cifar100": {"baseline.lr": 0.03, "baseline.epochs": 40},
    "imagenet-r": {"baseline.lr": 0.005, "baseline.epochs": 50},
    "cub200": {"baseline.lr": 0.03, "baseline.epochs": 50, "baseline.schedule": "step"},
    "omnibenchmark": {"baseline.lr": 0.005},
}

# Small images have few tokens: a long prefix would take most of the attention.
_QUICK: Mapping[str, Any] = {
    "baseline.epochs": 5,
    "baseline.batch_size": 32,
    "baseline.lr": 0.05,
    "baseline.length": 5,
    "retrieval.lr_factor": 10.0,
}

S_PROMPT_PLUS_PLUS = BaselineComponent(
    name="s-prompt-plus-plus",
    config=SPromptPlusPlusConfig,
    summary="one independent prefix per set in the first five blocks",
    citation="Wang et al., S-Prompts Learning with Pre-trained Transformers, NeurIPS 2022",
    build=SPromptPlusPlus,
    retrieval="key-cosine",
    presets=_PRESETS,
    tuned={"digits": _QUICK, "glyphs": _QUICK, "folder": _QUICK},
)
