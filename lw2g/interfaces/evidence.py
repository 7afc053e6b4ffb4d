"""The contract of a measure: what it is shown of a task that has arrived, and what it says of each set.

A measure declares what it needs, and is shown that alone. One pass over D_sub serves all measures of a run.
What it has to know of old tasks it stores when they are learned: their images are gone afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Literal, get_args

import attrs
import torch
from torch import Tensor

from lw2g.errors import ContractError
from lw2g.geometry.hindrance import Reduce
from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.growth import Measured
from lw2g.interfaces.memory import SpaceOptions
from lw2g.interfaces.site import Site
from lw2g.vit.taps import Tap

__all__ = [
    "NEEDS",
    "Candidate",
    "Measure",
    "Moment",
    "Need",
    "Sample",
    "SampleOptions",
    "Stored",
    "unread",
    "untried",
]

Need = Literal["spaces", "gradients", "fitted", "moments", "queries", "features", "retrieved", "trial"]
"""What a measure may ask for; each is an attribute of a sample or its candidates that is else empty.

``spaces``: the spaces of old tasks that the memory protects. ``gradients``: of the probe loss at the sites
that have such a space, under draws of the new classes' head (one backward a candidate and draw).
``fitted``: of a head fitted to the features (another forward and backward). ``moments``: second moments of
un-prompted activations. ``queries``: un-prompted features. ``features``: what the head is fed under each
candidate (one forward a candidate, the same as that of the gradients). ``retrieved``: the old task that the
run's own retrieval gives each image. ``trial``: training of copies for some steps (by far the dearest).
"""
NEEDS: tuple[Need, ...] = get_args(Need)

Moment = Literal["begin", "end"]
"""When a measure stores: as a task begins, its set chosen and untrained; or when it is learned."""


@attrs.frozen(kw_only=True)
class SampleOptions:
    """How a run looks at D_sub.

    Attributes:
        pretrained: How pre-trained spaces are built.
        reduce: What makes one angle of those of rows and sites.
        literal: Whether one draw of the head, the one training begins with, and the gradient's own images
            decide, as in the paper.
        centre: Whether activations are centred for evidence.
    """

    pretrained: SpaceOptions
    reduce: Reduce = "mean-cos"
    literal: bool = False
    centre: bool = False


@attrs.frozen(kw_only=True, eq=False)
class Candidate:
    """A live set, as it meets D_sub.

    Attributes:
        set: Its id.
        tasks: The tasks that it holds, from 0.
        sites: Its measured sites, shared ones included, by name.
        spaces: The old tasks' spaces at those that have one (``spaces``).
        captured: Shares of D_sub's energy in the spaces whose energy is cut at a tap (``spaces`` and
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
    """Refuse to read activations for a measure that does not declare to need their moments.

    Raises:
        ContractError: Always.
    """
    raise ContractError("a measure asks for moments and does not declare so; add 'moments' to its needs")


def untried(set_id: int | None, steps: int, draw: int) -> Tensor:
    """Refuse to try anything for a measure that does not declare to need it.

    Raises:
        ContractError: Always.
    """
    raise ContractError("a measure asks for a trial and does not declare so; add 'trial' to its needs")


@attrs.frozen(kw_only=True, eq=False)
class Sample:
    """D_sub: some training images of a task under the test transform, in groups, and what sets do with them.

    Images stand group by group, and every group deals the classes alike. What a measure has not declared to
    need is empty. Labels, features, queries and what was stored lie on the CPU; gradients, spaces and moments
    on the run's device.

    Attributes:
        task: The task.
        labels: Positions of the images' classes, ``[n]`` int64.
        groups: The group of each image, from 0, ascending, ``[n]`` int64.
        left_out: Share of the task's training images that are not in the sample.
        seed: The run's.
        options: How the run looks at it.
        candidates: The sets that can be reused, ascending by id.
        task_to_set: The set of each task learned so far.
        stored: What this measure has stored, by set; also of sets that are no candidates.
        moments: Returns the un-prompted activations' second moments at some taps, one per group.
        trial: Returns the losses of held-out training images ``[n]`` after some steps on copies of what
            learns: ``trial(set, steps, draw)``, with None for a new set, and the number of a draw of the
            head.
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
    options: SampleOptions
    candidates: tuple[Candidate, ...] = ()
    task_to_set: tuple[int, ...] = ()
    stored: Mapping[int, Mapping[str, Tensor]] = attrs.field(factory=dict)
    moments: Callable[[Sequence[Tap]], Mapping[Tap, list[SecondMoment]]] = unread
    trial: Callable[[int | None, int, int], Tensor] = untried
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
    """A number per live set that says how a task that has arrived stands to it.

    Attributes:
        needs: What it is shown of a task that has arrived.
        stores: When :meth:`store` is called; None: never.
        store_needs: What it is shown then.
    """

    needs: Set[Need] = frozenset()
    stores: Moment | None = None
    store_needs: Set[Need] = frozenset()

    @abstractmethod
    def measure(self, sample: Sample) -> Mapping[int, Measured]:
        """Return what is said of each candidate, by set; one of which nothing can be said is left out.

        It must depend on nothing but the sample, and of a candidate say the same whichever others there are.
        """

    def store(self, sample: Sample) -> Mapping[str, Tensor]:
        """Return what later tasks will be compared with, in place of what was stored of the set before.

        Args:
            sample: The task's images; its one candidate is the set that the task has, and ``stored`` what
                earlier tasks have left of that set (nothing of a new one).
        """
        raise TypeError(
            f"{type(self).__name__} says stores = {self.stores!r}; give it a method store, or say None"
        )


class Stored:
    """What measures have stored, by measure and set; on the CPU."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], dict[str, Tensor]] = {}

    def put(self, measure: str, set_id: int, values: Mapping[str, Tensor]) -> None:
        """Store in place of what was there."""
        self._found[measure, set_id] = {
            name: value.detach().cpu().contiguous() for name, value in values.items()
        }

    def of(self, measure: str) -> dict[int, Mapping[str, Tensor]]:
        """Return what a measure has stored, by set."""
        return {set_id: values for (name, set_id), values in self._found.items() if name == measure}

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything as ``"<measure>/<set>/<name>"``."""
        return {
            f"{measure}/{set_id}/{name}": value
            for (measure, set_id), values in self._found.items()
            for name, value in values.items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor], names: Set[str]) -> None:
        """Restore what :meth:`state_dict` returned, of the named measures."""
        self._found = {}
        for key, value in state.items():
            measure, set_id, name = key.split("/", 2)
            if measure in names:
                self._found.setdefault((measure, int(set_id)), {})[name] = value
