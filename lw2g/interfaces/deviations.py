"""Deviations: differences from a published method that a component declares and no option removes."""

from __future__ import annotations

from typing import Literal, get_args

import attrs

from lw2g.interfaces.choices import is_one_of

__all__ = ["NEW_SETS_MERGED", "PLAIN_IMAGES", "UNSEEN_MASKED", "Condition", "Deviation"]

Condition = Literal["always", "reuse", "spaces"]


@attrs.frozen(kw_only=True)
class Deviation:
    """A difference from the published method that no option removes.

    lw2g is compared with the paper, or with the released code where the paper says nothing.

    Attributes:
        topic: What differs, as a dotted name like those of options.
        value: What lw2g does.
        published: What the authors do.
        note: The reason.
        when: Which runs it affects: ``"always"`` all of them, ``"reuse"`` those in which tasks share a set,
            ``"spaces"`` those that keep the spaces of sets (for evidence or for protection).
    """

    topic: str
    value: str
    published: str
    note: str
    when: Condition = attrs.field(default="always", validator=is_one_of(get_args(Condition)))


# Differences that several components share; each names those from which its authors' code departs.

UNSEEN_MASKED = Deviation(
    topic="evaluation.unseen_classes",
    value="masked",
    published="scored",
    note="the released evaluation leaves the untrained outputs of future classes in the argmax",
)
"""Outputs of classes to come are masked in the evaluation."""

PLAIN_IMAGES = Deviation(
    topic="spaces.images",
    value="under the test transform",
    published="under training augmentation",
    note="spaces and evidence should not depend on random crops; the paper says nothing, the code augments",
)
"""Spaces are made of images without augmentation."""

NEW_SETS_MERGED = Deviation(
    topic="baseline.ensemble",
    value="new sets alone, with the other live sets",
    published="the set of every task, with those of all earlier tasks",
    note="mixing would carry a reused set into the space of its old tasks",
    when="reuse",
)
"""A new set is mixed with the other live sets, and a reused one is not."""
