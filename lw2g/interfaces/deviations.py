"""What differs from a published method whatever its options are: declared by the component that differs."""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = ["PLAIN_IMAGES", "UNSEEN_MASKED", "VALUES_FREE", "Condition", "Deviation"]

Condition = Literal["always", "reuse", "spaces"]


@attrs.frozen(kw_only=True)
class Deviation:
    """A standing difference from the published method; no option takes it away.

    Ours is compared with the paper, and with the released code where the paper says nothing.

    Attributes:
        topic: Where it lies, as a dotted name beside those of options.
        value: What is done here.
        published: What the authors do.
        note: Why.
        when: Which runs it touches: all of them, those in which tasks share a set, or those in which the
            spaces of sets are kept (for evidence or for protection).
    """

    topic: str
    value: str
    published: str
    note: str
    when: Condition = "always"


# Differences that lie in the framework. They are named by the components whose authors do otherwise.

UNSEEN_MASKED = Deviation(
    topic="evaluation.unseen_classes",
    value="masked",
    published="scored",
    note="the released evaluation leaves the untrained outputs of future classes in the argmax",
)

PLAIN_IMAGES = Deviation(
    topic="spaces.images",
    value="under the test transform",
    published="under training augmentation",
    note="spaces and evidence should not depend on random crops; the paper says nothing, the code augments",
)

VALUES_FREE = Deviation(
    topic="sites.values",
    value="neither measured nor projected",
    published="part of the prompt",
    note="the paper speaks of prompt and key, its code takes the key half: values multiply no activation",
    when="spaces",
)
