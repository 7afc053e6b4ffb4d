"""Building block: classifiers over all classes of the stream, trained or in closed form.

A method with a linear head derives from :class:`HeadedBaseline`, its options from
:class:`lw2g.blocks.options.HeadOptions`, and it passes its phases through
:meth:`~HeadedBaseline.with_head`. Then a closed-form head can replace the trained one at prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.carrying import Before
from lw2g.blocks.motions import Motions, require_motion, require_moved
from lw2g.blocks.options import HeadOptions
from lw2g.blocks.statistics import ClassStatistics, collect_features
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline, mask_logits
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.carry import Carry, CarryContext, Motion
from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo, derive_seed
from lw2g.interfaces.defaults import DEFAULT_MOTION
from lw2g.interfaces.head import ClosedForm, HeadContext
from lw2g.interfaces.phase import ComputePhase, Phase
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.scope import Scope
from lw2g.vit.own_feature import own_columns

__all__ = [
    "CosineClassifier",
    "HeadedBaseline",
    "carry_of",
    "closed_form",
    "closed_form_head",
    "fitting_phase",
    "linear_head",
]


class CosineClassifier(nn.Module):
    """A cosine classifier of one task's classes, for training alone.

    Attributes:
        weight: ``[classes, dim]``, uniform within ``1 / sqrt(dim)``.
        sigma: Learned factor on the cosines, 1 at the start.
    """

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, dim))
        self.sigma = nn.Parameter(torch.ones(1))
        self.draw()

    def draw(self) -> None:
        """Redraw the weight from torch's global generator."""
        bound = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, features: Tensor) -> Tensor:
        """Return ``sigma * cos(features, weight)``, ``[B, classes]``."""
        cosines = functional.normalize(features, dim=-1) @ functional.normalize(self.weight, dim=-1).T
        return self.sigma * cosines


def linear_head(dim: int, num_classes: int) -> nn.Linear:
    """Return a linear head over all classes: truncated normal weights (std 0.02), zero bias."""
    head = nn.Linear(dim, num_classes)
    nn.init.trunc_normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    return head


def closed_form_head(options: HeadOptions, context: BuildContext) -> ClosedForm | None:
    """Return the closed-form head that the options name; None for the trained linear head.

    Raises:
        ConfigError: The head cannot be built as configured, or not be carried.
    """
    if options.head == "linear":
        return None
    carry = carry_of(options, context)
    head = closed_form(options.head, options.head_features, context, carried=carry.moves)
    if carry.moves and not head.carried:
        raise ConfigError(
            f"baseline.head_carry: no carry can move the sums of head {options.head!r}",
            "leave it out, or use another head such as 'lda'",
        )
    return head


def closed_form(name: str, width: int, context: BuildContext, *, carried: bool = False) -> ClosedForm:
    """Return a closed-form classifier for the backbone's features, of all layers that a run joins.

    Args:
        name: Name of the head, which an option of the baseline must hold (``names="head"``).
        width: Number of random features that the head makes of the backbone's, if it makes any.
        context: What is known before the first task.
        carried: Whether the head's sums are to follow features that drift.

    Raises:
        ConfigError: The head cannot be built as configured.
    """
    dim = context.backbone.width  # of a joined feature; ``backbone.dim`` is that of one part
    head_context = HeadContext(
        dim=dim,
        num_classes=context.num_classes,
        # the seed is of the sizes, too: random maps of two sizes share no number
        seed=derive_seed(context.seed, "head", dim, width),
        features=width,
        carried=carried,
        layers=context.backbone.fingerprint.layers,
        own=own_columns(context.backbone),
    )
    head: ClosedForm = context.heads[name].build(head_context)
    return head


def carry_of(options: HeadOptions, context: BuildContext) -> Carry:
    """Return how motions are fitted, as the options name it.

    Raises:
        ConfigError: An option contradicts the others.
    """
    maker = context.carries[options.head_carry]
    carry_context = CarryContext(dim=_moved_width(options, context))
    if not maker.wraps:
        if options.head_gated != DEFAULT_MOTION:
            raise ConfigError(
                f"baseline.head_gated: {options.head_gated!r} has no gate while baseline.head_carry is "
                f"{options.head_carry!r}",
                "set baseline.head_carry=gated, or leave it out",
            )
        carry: Carry = maker.build(carry_context)
        return carry
    if options.head_residual:
        raise ConfigError(
            "baseline.head_residual: a gated carry leaves scatters as they are, and nothing is added to them",
            f"leave it out, or set baseline.head_carry={options.head_gated}",
        )
    inner = context.carries[options.head_gated]
    if inner.wraps:
        raise ConfigError(
            f"baseline.head_gated: {options.head_gated!r} wraps another carry itself",
            f"name one that does not, such as {DEFAULT_MOTION!r}",
        )
    inner_carry = inner.build(carry_context)
    wrapping: Carry = maker.build(attrs.evolve(carry_context, inner=inner_carry))
    return wrapping


def _moved_width(options: HeadOptions, context: BuildContext) -> int:
    """Return the width of the features that drift: what a head in closed form is fed, or what is trained."""
    return context.backbone.dim if options.head == "linear" else context.backbone.width


def fitting_phase(
    name: str, context: TaskContext, head: ClosedForm, features: Callable[[Batch], Tensor]
) -> ComputePhase:
    """Return the phase that fits a closed-form classifier to a task's images under the test transform.

    Args:
        name: Shown in the progress, and the purpose of the phase's generator.
        context: The task.
        head: The classifier.
        features: Returns the features of a batch.
    """
    # when the phase is made: what the head lacks is reported before anything is trained
    head.expect(context.task)

    def run(progress: Callable[[int, int], None]) -> None:
        rows, labels = collect_features(context, features, progress)
        head.learn(rows, labels, context.generator(name))
        head.observe(rows, labels)

    return ComputePhase(name=name, run=run)


class HeadedBaseline(Baseline):
    """A baseline with a linear head over all classes, which a closed-form head can replace at prediction.

    Training and evidence use :attr:`head`, prediction uses :meth:`logits`. A closed-form head keeps sums over
    the features of each task under its own set, as they were at the end of the task. If a later task trains
    that set or parameters that all sets share, these features drift and the sums are *stale*, because no old
    image is left to measure them again; the record holds the share of such classes (``stale_classes``).

    ``head_carry`` corrects the sums of every old class whose features a task makes drift
    (:mod:`lw2g.blocks.carrying`). Where the trained head predicts, it corrects the Gaussians on which replay
    trains it. It passes the task's images through each old set concerned before and after the task: two
    passes per such set (one for the task's own). The record counts these images
    (``findings.carry_forwards``) and the motions by what was fitted (``findings.carried_by``), and tells how
    far classes went (``findings.motions``).

    Attributes:
        head: The trained head.
        closed_form: The closed-form head that predicts; None if :attr:`head` does.
        carry: How motions are fitted.
        carry_name: The name of its component.
        head_residual: Whether a motion also says what it leaves of the features' scatter.
        before: Features of the task's images at its beginning, for ``head_carry``; else None.
        motions: What the carry has moved; None likewise.
        replays: Whether replay trains :attr:`head` on Gaussians of classes, which a carry moves where it
            predicts.
    """

    several_classes = True

    replays: ClassVar[bool] = False

    before: Before | None
    motions: Motions | None

    def __init__(self, options: HeadOptions, context: BuildContext) -> None:
        super().__init__(context)
        self.head = self.new_head().to(context.device)
        predictor = closed_form_head(options, context)
        if predictor is not None:
            predictor = predictor.to(context.device)
        self.register_module("closed_form", predictor)
        self.carry = carry_of(options, context)
        self.carry_name = options.head_carry
        self.head_residual = options.head_residual
        before = None
        motions = None
        if self.carry.moves:
            width = _moved_width(options, context)
            before = Before(width, len(self.carry.candidates)).to(context.device)
            motions = Motions().to(context.device)
        self.register_module("before", before)
        self.register_module("motions", motions)
        if self.carry.moves and predictor is None and not self.replays:
            raise ConfigError(
                "baseline.head_carry: the trained head keeps nothing that could be carried",
                "set baseline.head to a closed-form head such as 'lda', or leave head_carry out",
            )

    def new_head(self) -> nn.Linear:
        """Return the trained classifier over all classes."""
        return linear_head(self.context.backbone.dim, self.context.num_classes)

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the linear head, or scores of the closed-form head, ``[B, num_classes]``."""
        if self.closed_form is not None:
            return self.closed_form.logits(features)
        return cast(Tensor, self.head(features))

    def class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the trained head's cross-entropy over the task's classes for features ``[B, dim]``."""
        return functional.cross_entropy(mask_logits(self.head(features), task.classes), batch.labels)

    def probe_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the loss whose gradient is the evidence: :meth:`class_loss`, whichever head predicts."""
        return self.class_loss(features, batch, task)

    def with_head(
        self,
        context: TaskContext,
        *phases: Phase,
        replay: Sequence[Phase] = (),
        gaussians: ClassStatistics | None = None,
    ) -> Sequence[Phase]:
        """Return a task's phases with those of the head that predicts.

        A closed-form head is fitted after all other phases. If the task changes statistics that are carried,
        a phase before the others stores the features of the task's images.

        Args:
            context: The task.
            phases: What trains the task's set.
            replay: What takes Gaussians of the task's classes, and trains the head on those of all.
            gaussians: These Gaussians.
        """
        task_head = _TaskHead(self, context, gaussians)
        first: list[Phase] = []
        following: list[Phase] = []
        if task_head.views:
            # after the training nothing has these features any more
            first.append(ComputePhase(name="head-before", run=task_head.look))
            following.append(ComputePhase(name="head-carry", run=task_head.follow))
        if self.closed_form is not None:
            self.closed_form.expect(context.task)
            # it moves its old sums itself, before it adds the task's
            return (*first, *phases, *replay, ComputePhase(name="head", run=task_head.fit))
        # replay trains the head on Gaussians, so they move before it
        return (*first, *phases, *following, *replay)

    def findings(self) -> Mapping[str, Any]:
        """Return the number of images passed to carry statistics, and the motions: of what kind, how far."""
        of_head = super().findings()
        if self.before is None or self.motions is None:
            return of_head
        motions = dict(zip(self.carry.candidates, self.before.choices.tolist(), strict=True))
        return {
            **of_head,
            "carry_forwards": int(self.before.forwards),
            "carried_by": {name: count for name, count in motions.items() if count},
            "motions": self.motions.as_findings(),
        }

    def warnings(self, task: TaskInfo) -> Sequence[str]:
        """Return a line if the task moved its own classes much farther than earlier tasks did theirs."""
        if self.motions is None:
            return ()
        entries = list(self.motions.entries())
        # a task that moved nothing has no entry: the last one is then an earlier task's
        if not entries or entries[-1].task != task.index or not entries[-1].alarming:
            return ()
        last = entries[-1]
        what = "baseline.head_carry=gated would hold old classes that are far from the new ones"
        if self.carry.gate:
            what = f"its gate held {len(last.held)} of {last.carried} old classes"
        return (
            f"task {task.index + 1} moved its classes {last.times:.1f} times as far as earlier tasks did, so "
            f"that a carry may take old classes too far; {what}",
        )


class _TaskHead:
    """What :meth:`HeadedBaseline.with_head` does before and after the training of one task.

    Attributes:
        views: Old classes whose features drift in the task, and whose sums or Gaussians follow.
        owner: The set under which the task's own features are measured; 0 if they depend on all sets
            together.
    """

    def __init__(
        self, baseline: HeadedBaseline, context: TaskContext, gaussians: ClassStatistics | None
    ) -> None:
        self.baseline = baseline
        self.context = context
        self.gaussians = gaussians
        self.views: list[_View] = []
        self.owner = 0
        if baseline.before is not None:
            if baseline.trains(context.task):  # otherwise no feature moves
                self.views = _drifting_views(baseline.scope, context)
            self.owner = baseline.scope.made_under(context.set_id)

    def rows(self, routing: Routing, progress: Callable[[int, int], None]) -> tuple[Tensor, Tensor]:
        """Return features ``[n, dim]`` of the task's images under a routing, and their labels ``[n]``."""
        return collect_features(
            self.context, lambda batch: self.baseline.head_features(batch, routing), progress
        )

    def own_rows(self, progress: Callable[[int, int], None]) -> tuple[Tensor, Tensor]:
        """Return features ``[n, dim]`` of the task's images under its own set, and their labels ``[n]``."""
        return self.rows(self.context.pool.force(self.context.set_id), progress)

    def look(self, progress: Callable[[int, int], None]) -> None:
        """Store the features of the task's images under every old set concerned, before the training."""
        assert self.baseline.before is not None
        features = []
        for view in self.views:
            features.append(self.rows(view.before, progress)[0])
        self.baseline.before.put(features)

    def motions(self, own: Tensor, labels: Tensor, progress: Callable[[int, int], None]) -> list[Motion]:
        """Return how the features of old classes moved in the task, one motion per view, and record them.

        Args:
            own: Features of the task's images under its own set after the training, ``[n, dim]``.
            labels: Their classes, ``[n]``.
            progress: Called with the number of images done and of all.
        """
        baseline = self.baseline
        if baseline.before is None or baseline.motions is None:
            return []
        motions = []
        lengths = []
        for view, before in zip(self.views, baseline.before.take(), strict=True):
            after = own
            passes = 1
            if view.owner != self.owner:
                # under another set than the task's own the images need a second pass
                after, _ = self.rows(view.after, progress)
                passes = 2
            found: object = baseline.carry.fit(before, after, labels, residual=baseline.head_residual)
            motion, candidate = require_motion(found, baseline.carry.candidates, baseline.carry_name)
            baseline.before.count(candidate, len(labels) * passes)
            motions.append(motion)
            # lengths are of where classes are now: they are carried only when all motions are known
            centres = self.centres(view.classes)
            require_moved(motion(centres), centres.shape, baseline.carry_name)
            lengths.append(_lengths(motion, before, after, labels, centres))
        if lengths:
            classes = ClassMap.of(self.context.history)
            concerned = [classes.target(position) for view in self.views for position in view.classes]
            baseline.motions.note(self.context.task.index, lengths, concerned)
        return motions

    def centres(self, classes: list[int]) -> Tensor:
        """Return the means of classes that the head in closed form keeps, or else the Gaussians."""
        keeper: ClosedForm | ClassStatistics | None = self.baseline.closed_form
        if keeper is None:
            keeper = self.gaussians
        assert keeper is not None
        return keeper.centres(torch.as_tensor(classes, device=self.context.device))

    def fit(self, progress: Callable[[int, int], None]) -> None:
        """Move the sums of old classes, then add the task's features to the head in closed form."""
        head = self.baseline.closed_form
        assert head is not None
        rows, labels = self.own_rows(progress)
        motions = self.motions(rows, labels, progress)
        # old classes first: the task's own features do not drift, and may share a scatter with them
        for view, motion in zip(self.views, motions, strict=True):
            head.carry(motion, view.classes, view.owner)
        head.learn(rows, labels, self.context.generator("head"), self.owner)
        head.observe(rows, labels)

    def follow(self, progress: Callable[[int, int], None]) -> None:
        """Move the Gaussians of old classes."""
        assert self.gaussians is not None
        rows, labels = self.own_rows(progress)
        motions = self.motions(rows, labels, progress)
        for view, motion in zip(self.views, motions, strict=True):
            self.gaussians.carry(motion, view.classes)


def _lengths(
    motion: Motion, before: Tensor, after: Tensor, labels: Tensor, centres: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return how far new classes went ``[c]``, how far old ones are carried ``[m]``, their shares ``[m]``.

    A share is that of the motion which an old class takes, from 0 to 1.

    Args:
        motion: That of a task under one set.
        before: Features of the task's images before it, ``[n, dim]``.
        after: After it.
        labels: Their classes.
        centres: Means of the old classes before they are carried, ``[m, dim]`` float64.
    """
    drift = after.double() - before.double()
    new = torch.stack([drift[labels == label].mean(0).norm() for label in torch.unique(labels)])
    taken = centres.new_ones(len(centres))
    if motion.share is not None:
        taken = motion.share(centres)
    return new, (motion(centres) - centres).norm(dim=1), taken


class _View(NamedTuple):
    """Old classes whose features drift alike in a task.

    Attributes:
        owner: The set under which they were measured; 0 if features depend on all sets together.
        before: The routing for their features before the task.
        after: The routing for their features after it.
        classes: The classes.
    """

    owner: int
    before: Routing
    after: Routing
    classes: list[int]


def _drifting_views(scope: Scope, context: TaskContext) -> list[_View]:
    """Return one view per set under which features of old classes drift in a task.

    If features depend on all sets together, a new set makes them drift too: ``before`` leaves it out.
    """
    pool = context.pool
    drifting = dict[int, list[int]]()
    for task in context.history[:-1]:
        set_id = pool.task_to_set[task.index]
        if scope.moves(context.set_id, set_id):
            drifting.setdefault(scope.made_under(set_id), []).extend(task.classes)
    new = context.set_id if context.grew else None
    views = []
    for set_id, classes in drifting.items():
        views.append(_View(set_id, scope.before(pool, set_id, new), pool.force(set_id), classes))
    return views
