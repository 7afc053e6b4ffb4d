"""A baseline and a retrieval strategy laid out by hand, which have learned a little of three tasks.

Checks of what a forward computes and of how a component is built look at a :class:`Bench`; checks of what
training does look at a run (:mod:`lw2g.testing.small_run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.interfaces.baseline import Baseline, mask_logits
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.component import BaselineComponent, RetrievalComponent
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.phase import ComputePhase
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject
from lw2g.testing.tiny import tiny_backbone
from lw2g.training.evaluation.pairs import rows_of_each
from lw2g.training.phases import hosted, only_trainable
from lw2g.vit.backbone import Backbone

__all__ = [
    "HOST",
    "HOST_PHASE",
    "SAMPLES",
    "TASKS",
    "Bench",
    "begin",
    "built",
    "changed",
    "everything",
    "host_of",
    "lay_out",
    "lay_out_or_skip",
    "learn",
    "named_modules",
    "outcome",
    "randomise",
    "retrieval_of",
    "seeded",
    "wiring",
]

HOST, HOST_PHASE = "s-prompt-plus-plus", "prompts"
"""The baseline under which retrieval strategies are looked at, and its one phase."""

TASKS, SAMPLES = 3, 64
_PER_TASK = 8
_CPU = torch.device("cpu")


@attrs.frozen(kw_only=True, eq=False)
class Bench:
    """A baseline with its sets, and its retrieval strategy, all of random values, and some images.

    Attributes:
        component: The record of the baseline.
        baseline: The baseline.
        retrieval: The retrieval strategy, None where the baseline makes no hard choice.
        pool: Its sets: one per task, or one where the baseline does not grow.
        images: ``[64, 3, 16, 16]``, which no task was learned from.
        training: What the tasks are learned from, eight images each, ``[24, 3, 16, 16]``.
        history: Three tasks of two classes each.
    """

    component: BaselineComponent
    baseline: Baseline
    retrieval: RetrievalStrategy | None
    pool: Pool
    images: Tensor
    training: Tensor
    history: list[TaskInfo]

    @property
    def backbone(self) -> Backbone:
        """The backbone they were built with."""
        return self.baseline.context.backbone

    @property
    def each(self) -> bool:
        """Whether each set answers for each image."""
        return self.baseline.feature_scope == "each"

    def as_answers(self, features: Tensor) -> Tensor:
        """Return features ``[B, F]`` as :meth:`Baseline.logits` takes them, the same ones under every set."""
        members = len(self.pool) + len(self.baseline.beside())
        return features[:, None].expand(-1, members, -1) if self.each else features

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All modules with state, by what a message calls them."""
        return named_modules(self.baseline, self.pool, self.retrieval)

    def batch(self, positions: Tensor, classes: tuple[int, ...] = (0, 1)) -> Batch:
        """Return some of the images; their query costs a plain forward at this batch size.

        Args:
            positions: Which images, ``[B]``.
            classes: Their labels, in turn.
        """
        return self._batch(self.images[positions], positions, classes)

    def lesson(self, task: int) -> Batch:
        """Return the images that a task is learned from."""
        info, positions = self.history[task], _PER_TASK * task + torch.arange(_PER_TASK)
        return self._batch(self.training[positions], positions, info.classes)

    def _batch(self, images: Tensor, positions: Tensor, classes: tuple[int, ...]) -> Batch:
        norm = self.retrieval is None or self.retrieval.query_norm
        return Batch(
            labels=torch.tensor(classes)[positions % len(classes)],
            samples=positions,
            images=lambda: images,
            query=lambda: self.backbone.features(images, norm=norm),
        )

    def context(self, task: int) -> TaskContext:
        """Return the context of a task that has its set."""
        info = self.history[task]
        set_id = self.pool.task_to_set[task]
        return TaskContext(
            task=info,
            history=tuple(self.history[: task + 1]),
            pool=self.pool,
            set_id=set_id,
            grew=set_id not in self.pool.task_to_set[:task],
            retrieval=self.retrieval,
            backbone=self.backbone,
            device=_CPU,
            seed=0,
            statistics=lambda size: [self.lesson(task)],
        )

    @torch.no_grad()
    def retrieve(self, batch: Batch, tasks: int = TASKS) -> Tensor:
        """Return the tasks retrieved among the first ones, as evaluation asks for them, ``[B]``.

        Raises:
            NotApplicable: The baseline makes no hard choice of a set.
        """
        if self.retrieval is None:
            raise NotApplicable("it makes no hard choice of a set")
        of_class = torch.tensor([info.index for info in self.history[:tasks] for _ in info.classes])
        return self.retrieval.retrieve(self.retrieval.query(batch).float(), range(tasks), of_class)

    @torch.no_grad()
    def predict(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return logits over all classes and retrieved tasks (-1 without retrieval), as evaluation does."""
        tasks, sets = torch.full((len(batch),), -1), None
        if self.retrieval is not None:
            tasks = self.retrieve(batch)
            sets = self.pool.sets_of(tasks)
        return self.logits(batch, self.pool.route(sets)), tasks

    @torch.no_grad()
    def logits(self, batch: Batch, routing: Routing) -> Tensor:
        """Return logits over all classes under a routing, those of unseen classes masked.

        Where each set answers they are those of all sets, whatever the routing chooses.
        """
        if self.each:
            features = rows_of_each(self.baseline, self.pool, batch)
        else:
            features = self.baseline.features(batch, routing).float()
        return mask_logits(self.baseline.logits(features), range(self.history[-1].seen))


def host_of(subject: Subject) -> BaselineComponent:
    """Return the baseline to look at: the subject itself, or the host of what is no baseline."""
    if isinstance(subject.component, BaselineComponent):
        return subject.component
    return subject.catalogue.get("baseline", HOST)


def retrieval_of(subject: Subject) -> RetrievalComponent | None:
    """Return the retrieval strategy to look at: the subject itself, or the baseline's own."""
    component = subject.component
    if isinstance(component, RetrievalComponent):
        return component
    own = host_of(subject).retrieval
    return None if own is None else subject.catalogue.get("retrieval", subject.retrieval or own)


def lay_out(subject: Subject, draw: int = 0, tasks: int = TASKS) -> Bench:
    """Build a bench, and let it learn a little of each task.

    Parameters are moved at random besides, so that sets differ and heads prefer something; buffers, which may
    have structure (a Cholesky factor, a count), hold what phases have put there.

    Args:
        subject: What to look at.
        draw: Seed of everything that is drawn but for backbone and images, which are always the same: of the
            data that is learned, too.
        tasks: How many tasks begin; with none of them, call :func:`begin`.
    """
    component, strategy = host_of(subject), retrieval_of(subject)
    with seeded(0):
        backbone = tiny_backbone()
        # with timm's random weights all images have nearly the same feature
        randomise(backbone, 0.1)
        images = 2 * torch.randn(SAMPLES, 3, 16, 16) + torch.randn(SAMPLES, 3, 1, 1)
    context = BuildContext(backbone=backbone, num_tasks=TASKS, num_classes=2 * TASKS, device=_CPU, seed=0)
    with seeded(draw):
        shape = (TASKS * _PER_TASK, 3, 16, 16)
        training = 2 * torch.randn(shape) + torch.randn(*shape[:2], 1, 1)
        baseline: Baseline = _of(Baseline, component.build(_config(subject, component), context))
        retrieval: RetrievalStrategy | None = None
        if strategy is not None:
            retrieval = _of(RetrievalStrategy, strategy.build(_config(subject, strategy), context))
        bench = Bench(
            component=component,
            baseline=baseline,
            retrieval=retrieval,
            pool=Pool(),
            images=images,
            training=training,
            history=[],
        )
        for index in range(tasks):
            begin(bench, index)
            # what fails here fails in a small run as well, where a check of its own reports it
            with suppress(Exception):
                learn(bench, index)
        for module in bench.modules.values():
            randomise(module, 0.3)
    for module in bench.modules.values():
        module.eval()
    return bench


def begin(bench: Bench, index: int, *, reuse: bool = False) -> None:
    """Give the next task its set, as the framework does; fixed baselines have one for all tasks.

    Args:
        bench: Where.
        index: The task.
        reuse: Whether it goes on with the first set.
    """
    baseline, pool = bench.baseline, bench.pool
    classes = (2 * index, 2 * index + 1)
    info = TaskInfo(index=index, classes=classes, class_names=("", ""), seen=classes[-1] + 1, num_images=8)
    bench.history.append(info)
    baseline.begin_task(info)
    baseline.requires_grad_(False)
    if len(pool) and (reuse or bench.component.growth == "fixed"):
        pool.reuse(0)
    else:
        pool.grow(baseline.new_set(baseline.source_of(pool)).requires_grad_(False))
    if bench.retrieval is not None:
        bench.retrieval.begin_task(bench.context(index))


def learn(bench: Bench, index: int) -> None:
    """Run a task's phases on its few images, those that train for one step."""
    context, batch = bench.context(index), bench.lesson(index)
    retrieval = None if bench.retrieval is None else ("retrieval", bench.retrieval)
    first = [] if bench.retrieval is None else bench.retrieval.phases(context)
    for phase in (*first, *bench.baseline.phases(context)):
        if isinstance(phase, ComputePhase):
            phase.run(lambda done, total: None)
            continue
        if not phase.wanted():
            continue
        phase = hosted(phase, context, "baseline", retrieval, {})
        with only_trainable(list(bench.modules.values()), phase.trained), torch.enable_grad():
            optimizer = phase.build_optimizer()
            torch.autograd.backward(phase.step(batch).loss)
            optimizer.step()
            if phase.adjust is not None:
                with torch.no_grad():
                    phase.adjust()


def built(subject: Subject) -> Bench:
    """Return the subject's bench, laid out once.

    Raises:
        NotApplicable: It cannot be laid out; the check ``builds`` says why.
    """
    found = outcome(subject, "bench", lambda: lay_out(subject))
    if not isinstance(found, Bench):
        raise NotApplicable("it cannot be built; see the check 'builds'")
    return found


def lay_out_or_skip(subject: Subject, tasks: int = TASKS) -> Bench:
    """Return a bench of its own on which the first tasks have begun.

    Raises:
        NotApplicable: It cannot be laid out.
    """
    built(subject)
    return lay_out(subject, tasks=tasks)


def outcome(subject: Subject, key: str, make: Any) -> Any:
    """Return what ``make`` returned the first time, or the exception that it raised then."""

    def attempt() -> Any:
        try:
            return make()
        # A stranger's code may raise anything: one check reports it, the others are skipped.
        except Exception as error:
            return error

    return subject.once(key, attempt)


def named_modules(
    baseline: Baseline, pool: Pool, retrieval: RetrievalStrategy | None
) -> dict[str, nn.Module]:
    """Return all modules with state, by what a message calls them."""
    found: dict[str, nn.Module] = {"baseline": baseline}
    found |= {f"set {set_id}": pool[set_id] for set_id in pool.ids}
    return found if retrieval is None else {**found, "retrieval": retrieval}


def everything(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return copies of all parameters and buffers, those outside the state dict included, by full name."""
    return {
        f"{owner}.{name}": value.detach().clone()
        for owner, module in modules.items()
        for name, value in (*module.named_parameters(), *module.named_buffers())
    }


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors that came, went, or differ in a bit."""
    names = dict.fromkeys((*before, *after))
    return [name for name in names if not _same(before.get(name), after.get(name))]


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def wiring(module: nn.Module) -> dict[str, frozenset[str]]:
    """Return what every module of a tree is and holds: class, identity, attributes and hooks."""
    found = {}
    for name, part in module.named_modules():
        facts = {f"a {type(part).__name__} at {id(part):#x}"}
        for key, value in vars(part).items():
            if key.endswith("hooks") and value:
                facts.add(f"{len(value)} in {key}")
            elif not key.startswith("_"):
                facts.add(f"attribute {key}")
        found[name] = frozenset(facts)
    return found


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator within the block, and leave it as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@torch.no_grad()
def randomise(module: nn.Module, scale: float) -> None:
    """Move every parameter of a module: unlike buffers, which may have structure, they may take any value."""
    for parameter in module.parameters():
        parameter.add_(scale * torch.randn_like(parameter))


def _of(kind: Any, made: Any) -> Any:
    if not isinstance(made, kind):
        raise ContractViolation(f"let build return a {kind.__name__}, not {type(made).__name__!r}")
    return made.requires_grad_(False)


def _config(subject: Subject, component: Any) -> Any:
    return subject.config if component is subject.component else component.config()
