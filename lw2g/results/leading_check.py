"""The one accuracy of a model of photos that is told, and which images say it.

A model that has learned is checked twice: by images that were set apart before it learned them, and by all
that it keeps, each left out in turn. Of few that were set apart, the second tells more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from lw2g.errors import counted, is_counted
from lw2g.results.summaries import FEW_IMAGES, doubt_of_few, wilson

__all__ = ["ClassCheck", "LeadingCheck", "accuracy_words", "leading_check"]


_CHOSE_HEAD = "; these images also chose the formula, so new ones may do a little worse"


@attrs.frozen
class ClassCheck:
    """How many images of a class are found.

    Attributes:
        name: The class.
        images: How many were asked; 0 where none was.
        found: How many of them are named rightly, in per cent; None of none.
        taken_for: What the others are taken for, the most frequent first.
    """

    name: str
    images: int
    found: float | None
    taken_for: list[str]


@attrs.frozen(kw_only=True)
class LeadingCheck:
    """The accuracy that is told.

    Attributes:
        accuracy: Right answers in per cent.
        images: Of how many images.
        interval: Its 95 % interval, in per cent.
        which: Which images these are.
        leaves_out: Whether each was left out in turn.
        chose_head: Whether the head was chosen by these images, on which it may look better than it is.
        knows_one_class: Whether the model knows one class, which is its answer for every image.
        classes: The same of each class.
    """

    accuracy: float
    images: int
    interval: list[float]
    which: str
    leaves_out: bool
    chose_head: bool
    knows_one_class: bool
    classes: list[ClassCheck]

    @property
    def missed(self) -> list[ClassCheck]:
        """The classes of which fewer than half of the images are found."""
        return [row for row in self.classes if row.images and row.found is not None and row.found < 50]

    @property
    def words(self) -> str:
        """The accuracy, its images, how far it may be off, and whether they chose the formula, too."""
        return self.in_short + _CHOSE_HEAD if self.chose_head and not self.knows_one_class else self.in_short

    @property
    def in_short(self) -> str:
        """The accuracy, its images, and how far it may be off."""
        if self.knows_one_class:
            return "none yet, as the model knows one class"
        which = f"{counted(self.images, 'image')}{self.which}"
        return accuracy_words(self.accuracy, self.interval, self.images, which)


def accuracy_words(accuracy: float, interval: Sequence[float] | None, images: int, which: str) -> str:
    """Return an accuracy with how far it may be off; of few images, which are counted, in words alone.

    Args:
        accuracy: Right answers in per cent.
        interval: Its 95 % interval, in per cent; None where none is told, as of images that were learned.
        images: How many images it is of.
        which: What images these are, their number included.

    >>> accuracy_words(75.0, (64.5, 83.2), 80, "80 images of 2 classes")
    '75.0 % of 80 images of 2 classes (95 % interval 64.5 to 83.2)'
    >>> accuracy_words(75.0, (30.1, 95.4), 4, "4 images")
    '3 of 4 images: too few to tell much'
    >>> accuracy_words(100.0, None, 80, "80 images, of which it has learned all")
    '100.0 % of 80 images, of which it has learned all'
    """
    right = f"{round(accuracy * images / 100)}" if is_counted(images) else f"{accuracy:.1f} %"
    if interval is None:
        return f"{right} of {which}"
    doubt = doubt_of_few(interval, images)
    if is_counted(images):
        return f"{right} of {which}{doubt}"
    low, high = interval
    return f"{right} of {which} (95 % interval {low:.1f} to {high:.1f}){doubt}"


def leading_check(checks: Mapping[str, Any], *, has_old_classes: bool) -> LeadingCheck | None:
    """Return the accuracy that is told of a model; None where no image says any.

    Images of ``--test`` lead, as whoever names them asks for these. Of those that were set apart at least
    :data:`~lw2g.results.summaries.FEW_IMAGES` are needed, or as many as can be left out in turn. Both were
    asked when the step was learned: once a class is forgotten that it knew, images that are left out lead.

    Args:
        checks: What a step of learning reports and its model notes; an earlier lw2g noted less.
        has_old_classes: Whether the model knew classes before the step.
    """
    # a report has the accuracy that is told in place of this one
    checks = {**checks, **checks.get("set_apart", {})}
    checked = checks.get("checked") or 0
    tested_on = checks.get("tested_on")
    left_out = checks.get("left_out") or 0
    accuracy = checks.get("left_out_accuracy")
    rows = checks.get("left_out_classes", [])
    knows_one_class = len(rows) == 1
    knew_more = checks.get("forgotten_since", False)
    is_few = not checked or (not tested_on and checked < min(FEW_IMAGES, left_out))
    if accuracy is not None and (is_few or knew_more):
        return LeadingCheck(
            accuracy=accuracy,
            images=left_out,
            interval=wilson(accuracy, left_out),
            which=", each left out in turn",
            leaves_out=True,
            chose_head="choice" in checks,
            knows_one_class=knows_one_class,
            classes=_classes(rows, "left_out"),
        )
    if not checked:
        return None
    if tested_on:
        which = f" from {tested_on}"
    else:  # those of a later step are of its classes alone
        which = " of this step, not yet learned from" if has_old_classes else " not yet learned from"
    if knew_more:
        which += ", asked before a class was forgotten"
    return LeadingCheck(
        accuracy=checks["accuracy"],
        images=checked,
        interval=checks["interval"],
        which=which,
        leaves_out=False,
        chose_head=False,
        knows_one_class=knows_one_class,
        classes=_classes(checks["classes"], "checked"),
    )


def _classes(rows: Sequence[Mapping[str, Any]], images: str) -> list[ClassCheck]:
    """Return the checks of classes; ``images`` names what has their number of images."""
    checks = []
    for row in rows:
        # images that were set apart are few: of what they are taken for there are names alone
        taken_for = [one if isinstance(one, str) else f"{one[0]} ({one[1]})" for one in row["taken_for"]]
        checks.append(ClassCheck(row["class"], row[images], row["recall"], taken_for))
    return checks
