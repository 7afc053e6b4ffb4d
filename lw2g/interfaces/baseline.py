"""The contract of a baseline: how a parameter set adapts the frozen backbone, and how it is trained."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.errors import ContractError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.declared import require_declared
from lw2g.interfaces.head import ClosedForm
from lw2g.interfaces.phase import ComputePhase, StepOutput, TrainingPhase
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.scope import SET, Scope
from lw2g.interfaces.site import Site

__all__ = ["Baseline", "mask_logits"]

_FORMER = {
    "feature_scope": "scope = POOL, from lw2g.plugin",
    "first_task_alone": "trained_tasks = 1",
}
"""Names of attributes of older versions, with what is declared in their place."""
_DECLARED = ("scope", "learning_only", "several_classes", "trained_tasks")
"""What a class declares by attributes."""


def mask_logits(logits: Tensor, classes: Sequence[int] | range) -> Tensor:
    """Return the logits with minus infinity at all classes outside ``classes``.

    Args:
        logits: ``[B, num_classes]``.
        classes: Positions of the classes that keep their logits.

    Raises:
        ContractError: The logits have no column for one of them.

    >>> mask_logits(torch.zeros(1, 3), [1])
    tensor([[-inf, 0., -inf]])
    """
    columns = logits.shape[-1]
    beyond = max(classes, default=-1)
    # a slice beyond the columns would select nothing, and the loss would fail on a label later
    if beyond >= columns:
        raise ContractError(
            f"logits {list(logits.shape)} have no column for class {beyond} (columns count from 0)",
            "return [B, num_classes]: a column for each class of the stream (context.num_classes)",
        )
    hidden = torch.ones(columns, dtype=torch.bool, device=logits.device)
    # one slice per run of consecutive classes: an index tensor would have to be copied to the device
    # (class minus place is the same all along such a run)
    for _, run in itertools.groupby(enumerate(classes), key=lambda pair: pair[1] - pair[0]):
        positions = [position for _, position in run]
        hidden[positions[0] : positions[-1] + 1].fill_(False)
    return logits.masked_fill(hidden, float("-inf"))


class Baseline(nn.Module, ABC):
    """A continual-learning method without its growth policy, retrieval strategy and constraints.

    A baseline is a torch module. Its own parameters and buffers are what all tasks share (heads, shared
    prompts, statistics); a checkpoint holds its state dict. The parameters of one set live in the module that
    :meth:`new_set` makes, which the pool owns; the baseline never sees why tasks share a set. The framework
    puts modules in training mode while a :class:`TrainingPhase` runs, and in evaluation mode otherwise.

    Attributes:
        scope: What :meth:`features` depends on besides the image: ``BACKBONE``, ``SET``, ``SET_SHARED``,
            ``EACH`` or ``POOL`` of :mod:`lw2g.interfaces.scope`. Declared by the class, or set when a
            baseline is built, if its options decide.
        learning_only: Names of the baseline's own buffers, parameters and modules that only learning reads,
            such as statistics for replay; an exported model leaves them out.
        several_classes: Whether phases train by a loss over a task's classes, so that a task needs two of
            them; a run of others is refused before it begins. Declared by the class, or set as ``scope`` is.
        trained_tasks: How many tasks, from the first on, have phases that train; None: all. Later tasks may
            then bring one class, over which a loss would be 0. Declared by the class, or set as ``scope`` is.
        closed_form: The classifier in closed form that predicts, to whose sums new classes can be added; None
            where a trained head predicts.
        frozen_expert: A second classifier, on un-prompted features, whose answer is combined with the head's.
            The framework adds it where the configuration asks for it; else None.
    """

    closed_form: ClosedForm | None
    frozen_expert: nn.Module | None

    scope: Scope = SET
    learning_only: ClassVar[tuple[str, ...]] = ()
    several_classes: bool = False
    trained_tasks: int | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a class that declares what is not read, misspelt names too, or a scope that is none."""
        super().__init_subclass__(**options)
        for name, now in _FORMER.items():
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__}: {name} = {vars(cls)[name]!r} is not read; declare for example {now}"
                )
        require_declared(cls, _DECLARED)
        if not isinstance(cls.scope, Scope):
            raise TypeError(
                f"{cls.__name__}: scope = {cls.scope!r} is no scope; take BACKBONE, SET_SHARED, POOL or EACH "
                "from lw2g.plugin, or leave it out where features depend on the chosen set alone"
            )

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        self._context = context
        # registered empty, so that every method can be asked for them
        self.register_module("closed_form", None)
        self.register_module("frozen_expert", None)

    @property
    def likelihood(self) -> bool:
        """Whether logits are log likelihoods up to a term that all classes share.

        Their softmax is a posterior then; of other logits at a fitted temperature only. By default it is
        what :attr:`closed_form` says of its scores, and False of a trained head.
        """
        return self.closed_form is not None and self.closed_form.likelihood

    @property
    def context(self) -> BuildContext:
        """The context that the baseline was built with."""
        return self._context

    @property
    def takes_copies(self) -> bool:
        """Whether a routing may hold several copies of one set, one per group of samples.

        Return True if :meth:`features` treats each sample independently and reads only tensors from a set
        (:meth:`~lw2g.interfaces.pool.Routing.select`). Several groups of the evidence sample then share one
        forward; otherwise each group takes a forward of its own.
        """
        return False

    # -- sets ------------------------------------------------------------------------------------------

    @abstractmethod
    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return a new parameter set; random values come from torch's global generator.

        Args:
            source: What :meth:`source_of` returned: the set to start from, or several in one module. None for
                a random start, also when a checkpoint is about to be loaded into the set.
        """

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the set that the next new set starts from; None (the default) for a random start.

        Return an ``nn.ModuleList`` of live sets if a new set depends on several of them.
        """
        return None

    # -- forward ---------------------------------------------------------------------------------------

    @abstractmethod
    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return the input of the head, ``[B, F]``: the expensive half of a prediction."""

    def head_features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return what the head that predicts is fed, ``[B, F]``.

        It is what :meth:`features` returns; for a head in closed form of all the backbone's layers that a run
        asks for, while training goes on with the last one's.
        """
        if self.closed_form is None:
            return self.features(batch, routing)
        with self.context.backbone.joining():
            return self.features(batch, routing)

    @abstractmethod
    def logits(self, features: Tensor) -> Tensor:
        """Return logits over all classes of the stream, ``[B, num_classes]``: the cheap half.

        The framework masks the columns of unseen classes.

        Args:
            features: ``[B, F]``. With the scope ``EACH`` ``[B, K, F]``: under each live set, in the order of
                their ids, then under each module that :meth:`beside` returns.
        """

    def beside(self) -> tuple[nn.Module, ...]:
        """Return modules of the baseline that answer in addition to the live sets (scope ``EACH``).

        For example a merge of all sets. They have the form of a set, but the pool does not own them.
        """
        return ()

    def set_scores(self, features: Tensor) -> Tensor | None:
        """Return how well each live set suits each image, ``[B, sets]`` (scope ``EACH``).

        The set with the best score counts as the chosen one, the first of several equal ones. None (the
        default) means that the method chooses no set.

        Args:
            features: As for :meth:`logits`.
        """
        return None

    # -- learning a task -------------------------------------------------------------------------------

    def begin_task(self, task: TaskInfo) -> None:
        """Allocate what a task needs before evidence is collected, such as a new classifier.

        On resume it is called again for every task up to the current one, before the state is loaded.
        """

    def trains(self, task: TaskInfo) -> bool:
        """Return whether a task has phases that train."""
        return self.trained_tasks is None or task.index < self.trained_tasks

    @abstractmethod
    def phases(self, context: TaskContext) -> Sequence[TrainingPhase | ComputePhase]:
        """Return the phases of a task, in order. This method itself must not change any state."""

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return the loss of a training step: :meth:`probe_loss` with the task's set forced on all images."""
        features = self.features(batch, context.pool.force(context.set_id))
        return StepOutput(loss=self.probe_loss(features, batch, context.task), features=features)

    def probe_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the loss whose gradient is the evidence: cross-entropy over the new classes.

        Args:
            features: What :meth:`features` returns for the batch, ``[B, F]``.
            batch: Images of the task.
            task: The task.
        """
        return functional.cross_entropy(mask_logits(self.logits(features), task.classes), batch.labels)

    def draw_head(self, task: TaskInfo) -> None:
        """Redraw the classifier's initial values for a task's classes, from torch's global generator.

        Evidence is averaged over such draws, because the gradient's direction depends on the untrained head;
        the framework then restores the parameters. By default the task's rows in every linear layer over all
        classes get normal values of their present root mean square. Override it for another kind of
        classifier; change nothing but parameters.
        """
        rows = list(task.classes)
        for module in self.modules():
            if not isinstance(module, nn.Linear) or module.out_features != self.context.num_classes:
                continue
            for parameter in module.parameters(recurse=False):
                now = parameter.data[rows]
                root_mean_square = now.square().mean().sqrt()
                # through .data: a draw is no step that a gradient could follow
                parameter.data[rows] = torch.randn_like(now) * root_mean_square

    def warnings(self, task: TaskInfo) -> Sequence[str]:
        """Return what the user should know of a task that was just learned, a line each; none by default."""
        return ()

    def findings(self) -> Mapping[str, Any]:
        """Return what the run's record should hold about the method: JSON values by name.

        By default it is what a head in closed form says of itself.
        """
        return {} if self.closed_form is None else self.closed_form.findings()

    # -- what can be measured and protected ------------------------------------------------------------

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the sites of one parameter set."""
        return ()

    def shared_sites(self) -> Sequence[Site]:
        """Return the sites of parameters shared by all tasks."""
        return ()
