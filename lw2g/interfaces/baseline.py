"""The contract of a baseline: how a parameter set adapts the frozen backbone, and how it is trained."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.phase import ComputePhase, TrainingPhase
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.site import Site

__all__ = ["Baseline", "FeatureScope", "mask_logits"]

FeatureScope = Literal["backbone", "set", "each", "set+shared", "pool"]


def mask_logits(logits: Tensor, classes: Sequence[int] | range) -> Tensor:
    """Set the logits of all classes outside ``classes`` to minus infinity.

    Args:
        logits: ``[B, num_classes]``.
        classes: Positions that stay.

    >>> mask_logits(torch.zeros(1, 3), [1])
    tensor([[-inf, 0., -inf]])
    """
    hidden = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
    # by stretches of neighbours (a task's classes are one), since positions would have to be sent to a device
    stretches = itertools.groupby(enumerate(classes), key=lambda pair: pair[1] - pair[0])
    for first, *others in (list(stretch) for _, stretch in stretches):
        hidden[first[1] : first[1] + 1 + len(others)].fill_(False)
    return logits.masked_fill(hidden, float("-inf"))


class Baseline(nn.Module, ABC):
    """A method: everything about it that is not growth, retrieval or constraint.

    A baseline is a module: its parameters and buffers are what all tasks share (heads, shared prompts,
    statistics), and its state dict is what a checkpoint holds. Parameters that belong to a growth step live
    in the modules that :meth:`new_set` makes, which the pool owns. Why a set is shared, the baseline never
    learns. Modules are in training mode while a :class:`TrainingPhase` runs, in evaluation mode otherwise.

    Attributes:
        feature_scope: What :meth:`features` depends on beside the image: nothing learned (``"backbone"``),
            the chosen set, or the sets as they are where nothing is chosen (``"set"``), shared parameters too
            (``"set+shared"``), or all sets of the pool (``"pool"``; then one backward gives all candidates'
            gradients). ``"each"``: the chosen set, and every set is chosen in turn: each live set answers for
            each image, and :meth:`logits` makes one answer of theirs.
        learning_only: Names of buffers, parameters and modules of its own that only learning reads, such as
            statistics for a replay; an exported model leaves them out.
    """

    feature_scope: ClassVar[FeatureScope] = "set"
    learning_only: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        self._context = context

    @property
    def context(self) -> BuildContext:
        """What was known when the baseline was built."""
        return self._context

    @property
    def takes_copies(self) -> bool:
        """Whether a routing may hold copies of one set in place of the pool's, one per group of samples.

        So it is where :meth:`features` treats every sample alone and asks a set for nothing but its tensors
        (:meth:`~lw2g.interfaces.pool.Routing.select`). Evidence then takes several groups in one forward; by
        default it goes group by group.
        """
        return False

    # -- sets ------------------------------------------------------------------------------------------

    @abstractmethod
    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return a new parameter set, drawn from torch's global generator.

        Args:
            source: What :meth:`source_of` returned: a set to start from, or several in one module; None to
                start at random (and before a checkpoint is loaded into the set).
        """

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return what the next new set is made from; None (the default) for a random start.

        One set, or an ``nn.ModuleList`` of live sets where a new one must know all of them.
        """
        return None

    # -- forward ---------------------------------------------------------------------------------------

    @abstractmethod
    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return what the head is fed, ``[B, F]``: the expensive half of a prediction."""

    @abstractmethod
    def logits(self, features: Tensor) -> Tensor:
        """Return logits over all classes of the stream, ``[B, num_classes]``: the cheap half.

        Columns of unseen classes are masked by the framework.

        Args:
            features: ``[B, F]``; where each set answers ``[B, K, F]``, under the live sets in the order of
                their ids and then under what :meth:`beside` gives.
        """

    def beside(self) -> tuple[nn.Module, ...]:
        """Return modules like sets that answer beside the live ones, where each set answers.

        A merge of all sets, say; they belong to the baseline, and are none of the pool's.
        """
        return ()

    def set_scores(self, features: Tensor) -> Tensor | None:
        """Return how well each live set suits each image, ``[B, sets]``, where each set answers.

        The best is the set that the answer chose, of equals the first; None (the default) where the method
        chooses none.

        Args:
            features: As for :meth:`logits`.
        """
        return None

    # -- learning a task -------------------------------------------------------------------------------

    def begin_task(self, task: TaskInfo) -> None:
        """Make room for a task before evidence is collected (a new classifier, say).

        On resume it is called again for every task up to the current one, before the state is loaded.
        """

    @abstractmethod
    def phases(self, context: TaskContext) -> Sequence[TrainingPhase | ComputePhase]:
        """Return what is done with the task, in order. Must change nothing by itself."""

    def probe_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the loss whose gradient is the evidence: cross-entropy over the new classes (ruling a).

        Args:
            features: What :meth:`features` gives for the batch, ``[B, F]``.
            batch: Images of the task.
            task: The task.
        """
        return functional.cross_entropy(mask_logits(self.logits(features), task.classes), batch.labels)

    def draw_head(self, task: TaskInfo) -> None:
        """Draw anew, from torch's global generator, what the classifier begins with for a task's classes.

        Evidence is averaged over such draws, because the direction of a gradient is that of an untrained
        head; afterwards the parameters are put back. By default rows of every linear layer over all classes
        get normal values as large as they have now. Override it where the classifier is something else;
        change nothing but parameters.
        """
        rows = list(task.classes)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.out_features == self.context.num_classes:
                for parameter in module.parameters(recurse=False):
                    now = parameter.data[rows]
                    parameter.data[rows] = torch.randn_like(now) * now.square().mean().sqrt()

    def findings(self) -> Mapping[str, Any]:
        """Return what the method has to tell of itself, for the record: JSON values by name."""
        return {}

    # -- what can be measured and protected ------------------------------------------------------------

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the sites of one parameter set."""
        return ()

    def shared_sites(self) -> Sequence[Site]:
        """Return the sites of parameters shared by all tasks."""
        return ()
