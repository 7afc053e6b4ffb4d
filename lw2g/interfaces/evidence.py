"""The contract of a measure: its input for a new task, and its result for each set.

A measure declares what it needs and receives only that. One pass over the evidence sample serves all measures
of a run. A measure stores what it must know of an old task when that task is learned; the images are gone
afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal, get_args

import attrs
import torch
from torch import Tensor

from lw2g.errors import ContractError
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.growth import Measurement
from lw2g.interfaces.memory import SpaceOptions
from lw2g.interfaces.site import Site
from lw2g.maths.hindrance import Reduce
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g.vit.taps import Tap

__all__ = [
    "NEEDS",
    "Candidate",
    "Measure",
    "Need",
    "Sample",
    "unlearned",
    "unread",
    "untried",
]

Need = Literal[
    "spaces", "gradients", "fitted", "moments", "queries", "features", "retrieved", "trial", "outcome"
]
"""What a measure may need; each is an attribute of the sample or of its candidates, empty unless needed.

``spaces``: the spaces of old tasks in the memory. ``gradients``: gradients of the probe loss at the sites
that have such a space, for several draws of the new classes' head (one backward per candidate and draw).
``fitted``: gradients for a head that is fitted to the features (one more forward and backward). ``moments``:
second moments of un-prompted activations. ``queries``: un-prompted features. ``features``: the head's input
under each candidate (one forward per candidate, shared with the gradients). ``retrieved``: the old task that
the run's retrieval strategy gives each image. ``trial``: training of copies for some steps. ``outcome``: the
same to the end, and one forward of the images set apart per set (the dearest).
"""
NEEDS: tuple[Need, ...] = get_args(Need)


@attrs.frozen(kw_only=True, eq=False)
class Candidate:
    """A live set, as it meets the evidence sample.

    Attributes:
        set: Its id.
        tasks: The tasks that it holds, from 0.
        sites: Its measured sites, shared ones included, by name.
        spaces: The old tasks' spaces at those that have one (``spaces``).
        captured: Shares of the sample's energy in the spaces whose energy is cut at a tap (``spaces`` and
            ``moments``); None where there is no energy.
        gradients: By site that has a space: ``[draws, groups, rows, dim]``, sums over a group's images, by
            draw of the head (``gradients``).
        fitted: By site, space or not: ``[groups, rows, dim]``, sums over a group's images of the gradients of
            the cross-entropy of a head fitted to the features of the other half of the groups (``fitted``).
        features: What the head is fed under this set, ``[n, F]`` float32 (``features``).
    """

    set: int
    tasks: tuple[int, ...] = ()
    sites: Mapping[str, Site] = attrs.field(factory=dict)
    spaces: Mapping[str, Subspace] = attrs.field(factory=dict)
    captured: Mapping[str, float | None] = attrs.field(factory=dict)
    gradients: Mapping[str, Tensor] = attrs.field(factory=dict)
    fitted: Mapping[str, Tensor] = attrs.field(factory=dict)
    features: Tensor | None = None


def unread(taps: Sequence[Tap]) -> Mapping[Tap, list[SecondMoment]]:
    """Refuse moments of activations to a measure that does not declare this need.

    Raises:
        ContractError: Always.
    """
    raise ContractError("a measure asks for moments and does not declare so", "add 'moments' to its needs")


def untried(set_id: int | None, steps: int, draw: int) -> Tensor:
    """Refuse a trial to a measure that does not declare this need.

    Raises:
        ContractError: Always.
    """
    raise ContractError("a measure asks for a trial and does not declare so", "add 'trial' to its needs")


def unlearned(set_id: int | None, train: bool) -> Tensor:
    """Refuse outcomes to a measure that does not declare this need.

    Raises:
        ContractError: Always.
    """
    raise ContractError("a measure asks for an outcome and does not declare so", "add 'outcome' to its needs")


@attrs.frozen(kw_only=True, eq=False)
class Sample:
    """The evidence sample: some of a task's training images in groups, and what sets do with them.

    Images are under the test transform and stand group by group; every group deals the classes alike. What a
    measure has not declared to need is empty. Labels, features, queries and what was stored lie on the CPU;
    gradients, spaces and moments on the run's device.

    Attributes:
        task: The task.
        labels: Positions of the images' classes, ``[n]`` int64.
        groups: The group of each image, from 0, ascending, ``[n]`` int64.
        left_out: Share of the task's training images that are not in the sample.
        seed: The run's.
        space_options: How pre-trained spaces are built.
        reduce: What makes one angle of those of rows and sites.
        literal: Whether one draw of the head, the one training begins with, and the gradient's own images
            decide, as in the paper.
        centre: Whether activations are centred for evidence.
        candidates: The sets that can be reused, ascending by id.
        task_to_set: The set of each task learned so far.
        stored: What this measure has stored, by set; also of sets that are no candidates.
        moments: Returns the un-prompted activations' second moments at some taps, one per group.
        trial: Returns the losses of held-out training images ``[n]`` after some steps on copies of what
            learns: ``trial(set, steps, draw)``, with None for a new set, and the number of a draw of the
            head.
        outcome: Returns the losses of training images set apart ``[n]`` under a set that is trained on the
            other ones to the end, or is as it is: ``outcome(set, train)``, with None for a new set. A ridge
            regression on the features of the other images set apart asks each of them, whatever the method's
            head, and the loss is its squared error.
        queries: Un-prompted features, ``[n, dim]`` float32.
        retrieved: The old task that the run's retrieval gives each image, ``[n]`` int64; None also where it
            makes no hard choice.
        generator: Returns a generator of its own for one purpose within the task.
    """

    task: TaskInfo
    labels: Tensor
    groups: Tensor
    left_out: float = 0.0
    seed: int = 0
    space_options: SpaceOptions
    reduce: Reduce = "mean-cos"
    literal: bool = False
    centre: bool = False
    candidates: tuple[Candidate, ...] = ()
    task_to_set: tuple[int, ...] = ()
    stored: Mapping[int, Mapping[str, Tensor]] = attrs.field(factory=dict)
    moments: Callable[[Sequence[Tap]], Mapping[Tap, list[SecondMoment]]] = unread
    trial: Callable[[int | None, int, int], Tensor] = untried
    outcome: Callable[[int | None, bool], Tensor] = unlearned
    queries: Tensor | None = None
    retrieved: Tensor | None = None
    generator: Callable[[str], torch.Generator]

    @property
    def num_groups(self) -> int:
        """How many groups there are."""
        return int(self.groups[-1]) + 1

    def __len__(self) -> int:
        return len(self.labels)


class Measure(ABC):
    """A measure computes one number per live set, which relates a new task to that set.

    Attributes:
        needs: What :meth:`measure` needs in its sample.
        stores: When the framework calls :meth:`store`: as a task begins, its set chosen and untrained; or at
            its end, when it is learned; None: never.
        store_needs: What :meth:`store` needs in its sample.
    """

    needs: Set[Need] = frozenset()
    stores: Literal["begin", "end"] | None = None
    store_needs: Set[Need] = frozenset()

    def __init__(self, config: Any = None) -> None:
        """Keep the options, an instance of the measure's config class."""
        self.config = config

    @abstractmethod
    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the result for each candidate, by set; leave out a set for which it is not defined.

        The result must depend on the sample alone, and that of a candidate not on the other candidates.
        """

    def store(self, sample: Sample) -> Mapping[str, Tensor]:
        """Return the tensors that later tasks are compared with; they replace what was stored for the set.

        Args:
            sample: The task's images. Its only candidate is the task's set, and ``stored`` holds what earlier
                tasks stored for that set (nothing for a new one).
        """
        raise TypeError(
            f"{type(self).__name__} says stores = {self.stores!r}; give it a method store, or say None"
        )
