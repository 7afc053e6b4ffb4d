"""S-Prompt++: one independent prefix per set in the first five blocks, nothing shared but the head.

Wang et al., "S-Prompts Learning with Pre-trained Transformers", NeurIPS 2022, in the class-incremental form
that HiDe-Prompt (NeurIPS 2023) compares with. It is DualPrompt without the G-prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from lw2g.blocks.prefixes import PrefixBaseline
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import Phase

__all__ = ["SPromptPlusPlus"]


class SPromptPlusPlus(PrefixBaseline):
    """A set is the prefix of all its blocks; the retrieval strategy does the rest."""

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: prefix and head together."""
        return self.with_head(context, self.prompt_phase(context))
