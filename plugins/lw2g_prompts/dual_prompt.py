"""DualPrompt: a shared G-prompt in shallow blocks, one E-prompt per set in the next ones.

Wang et al., "DualPrompt: Complementary Prompting for Rehearsal-free Continual Learning", ECCV 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs.validators import ge
from torch import nn

from lw2g.blocks.prefixes import (
    PrefixBaseline,
    PrefixOptions,
    PrefixSet,
    blocks_option,
    check_blocks,
    inject_prefixes,
    prefix_sites,
)
from lw2g.errors import ConfigError
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.options import option
from lw2g.interfaces.phase import Phase
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.site import Site
from lw2g.vit.prefix import PrefixInjection

__all__ = ["DUAL_PROMPT", "DualPrompt", "DualPromptConfig"]


@attrs.frozen(kw_only=True)
class DualPromptConfig(PrefixOptions):
    """Options of ``dual-prompt``."""

    blocks: tuple[int, ...] = blocks_option((2, 3, 4), "blocks that get a set's E-prompt")
    length: int = option(20, "E-prompt tokens per block", validator=ge(1), published=20)
    shared_blocks: tuple[int, ...] = blocks_option((0, 1), "blocks that get the shared G-prompt", empty=True)
    shared_length: int = option(5, "G-prompt tokens per block", validator=ge(1), published=5)


class DualPrompt(PrefixBaseline):
    """A set is the E-prompt; the G-prompt and the head are shared and trained in every task."""

    feature_scope = "set+shared"

    def __init__(self, config: DualPromptConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.shared_blocks = check_blocks(
            config.shared_blocks, context.backbone.depth, "baseline.shared_blocks"
        )
        both = sorted(set(self.blocks) & set(self.shared_blocks))
        if both:
            raise ConfigError(
                f"baseline.shared_blocks: block {both[0]!r} is in baseline.blocks too; "
                "give each block the E-prompt or the G-prompt"
            )
        self.shared_prompt = PrefixSet(
            len(self.shared_blocks), config.shared_length, context.backbone.dim
        ).to(context.device)

    def injections(self, routing: Routing, size: int) -> Sequence[PrefixInjection]:
        """Return the E-prompts of the chosen sets and the G-prompt."""
        shared = inject_prefixes(self.shared_blocks, self.shared_prompt.key, self.shared_prompt.value)
        return (*super().injections(routing, size), shared)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: E-prompt, G-prompt and head together."""
        return (self.prompt_phase(context),)

    def shared_prompts(self) -> Sequence[nn.Parameter]:
        """Return the G-prompt."""
        return tuple(self.shared_prompt.parameters())

    def shared_sites(self) -> Sequence[Site]:
        """Return the key half of the G-prompt."""
        return prefix_sites(self.shared_prompt, self.shared_blocks, "shared")


# Effective values of the authors' runs. The released `threshold2` is 1 - phi.
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "cifar100": {
        "baseline.lr": 0.03,
        "baseline.epochs": 40,
        "growth.energy": 0.95,
        "growth.energy_pre": 0.95,
        "constraints.cpk.phi": 0.5,
        "constraints.lgcl.task_weight": 0.323,
        "constraints.lgcl.class_weight": 0.137,
    },
    "imagenet-r": {
        "baseline.lr": 0.005,
        "baseline.epochs": 50,
        "growth.energy": 0.99,
        "growth.energy_pre": 0.99,
        "constraints.cpk.phi": 0.4,
        "constraints.lgcl.task_weight": 0.3,
        "constraints.lgcl.class_weight": 0.7,
    },
    "cub200": {
        "baseline.lr": 0.03,
        "baseline.epochs": 50,
        "baseline.schedule": "step",
        "growth.energy": 0.90,
        "growth.energy_pre": 0.90,
        "constraints.cpk.phi": 0.7,
    },
    # epochs, energies and phi were never published for this one
    "omnibenchmark": {"baseline.lr": 0.03},
}

# Small images have few tokens: a long prefix would take most of the attention.
_QUICK: Mapping[str, Any] = {
    "baseline.epochs": 5,
    "baseline.batch_size": 32,
    "baseline.lr": 0.05,
    "baseline.length": 5,
    "retrieval.lr_factor": 10.0,
}

DUAL_PROMPT = BaselineComponent(
    name="dual-prompt",
    config=DualPromptConfig,
    summary="a shared G-prompt in shallow blocks and one E-prompt per set in deeper ones",
    citation="Wang et al., DualPrompt: Complementary Prompting for Rehearsal-free CL, ECCV 2022",
    build=DualPrompt,
    retrieval="key-cosine",
    presets=_PRESETS,
    tuned={"digits": _QUICK, "glyphs": _QUICK, "folder": _QUICK},
)
