"""Runs one training phase: epochs, optimizer, schedule, clipping, constraints, and exact continuation.

All randomness of a step is derived from (seed, task, phase, epoch, step), so a run that continues at a step
draws what an uninterrupted run draws.
"""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce

import attrs
import torch
from torch import Tensor, nn

from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.context import TaskContext, derive_seed
from lw2g.interfaces.phase import ParameterGroup, Phase, StepOutput, TrainingPhase
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.interfaces.tracker import EpochEnded
from lw2g.learning.finite import LossWatch
from lw2g.learning.protection import Protection
from lw2g.model.frozen_expert import expert_phase
from lw2g.pixels.decoding import chunks
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime import ranks
from lw2g.runtime.engine import Engine
from lw2g.runtime.progress import Reporter
from lw2g.runtime.returned import require_graph, require_phases, require_step

__all__ = ["PhaseProgress", "hosted", "is_frozen", "joined_phases", "only_trainable", "train_phase"]


@attrs.define(kw_only=True)
class PhaseProgress:
    """The position within a training phase.

    Attributes:
        epoch: The epoch to continue with.
        step: The step of that epoch to continue with.
        optimizer: The optimizer's state as tensors by name; empty at the start.
        require_sound: Raises if a loss of the epoch was not finite; call it before saving a state within it.
    """

    epoch: int = 0
    step: int = 0
    optimizer: dict[str, Tensor] = attrs.field(factory=dict)
    require_sound: Callable[[], None] = attrs.field(default=lambda: None, eq=False, repr=False)


def is_frozen(context: TaskContext, constraints: Mapping[str, Constraint]) -> bool:
    """Return whether the decision or a constraint keeps the task's set from being trained."""
    return context.held or any(constraint.holds(context) for constraint in constraints.values())


def hosted(
    phase: TrainingPhase,
    context: TaskContext,
    owner: str,
    retrieval: tuple[str, RetrievalStrategy] | None,
    constraints: Mapping[str, Constraint],
) -> TrainingPhase:
    """Return the host phase joined by the retrieval strategy and by losses of constraints.

    No phase trains a set that is held; a phase that trains nothing else is skipped.

    Args:
        phase: The phase; only a host is joined.
        context: The task.
        owner: Whose phase it is, for messages.
        retrieval: The strategy and its name for messages.
        constraints: The constraints, likewise.
    """
    groups = list(phase.groups)
    frozen = is_frozen(context, constraints)
    if not (phase.host or frozen):
        return phase
    if frozen:
        groups = _without(groups, context.parameters)
    if phase.host and retrieval is not None:
        groups.extend(retrieval[1].parameter_groups(context, phase.groups[0].lr))
    if not groups:
        return attrs.evolve(phase, wanted=lambda: False)
    if not phase.host:
        return attrs.evolve(phase, groups=tuple(groups))

    def step(batch: Batch) -> StepOutput:
        """Return the output of the phase's step, its loss with those of retrieval and constraints added."""
        output = require_step(phase.step(batch), phase, owner)
        parts: dict[str, Tensor | None] = {owner: output.loss}
        if retrieval is not None:
            parts[retrieval[0]] = retrieval[1].loss(batch, context)
        for name, constraint in constraints.items():
            parts[name] = constraint.extra_loss(batch, output, context)
        given = {name: part for name, part in parts.items() if part is not None}
        # losses are added in this order always: another one would round otherwise
        loss = reduce(operator.add, given.values())
        return attrs.evolve(output, loss=loss, parts=given)

    return attrs.evolve(phase, groups=tuple(groups), step=step)


def _without(groups: Sequence[ParameterGroup], module: nn.Module) -> list[ParameterGroup]:
    """Return the groups without a module's parameters."""
    spared = {id(parameter) for parameter in module.parameters()}
    left: list[ParameterGroup] = []
    for group in groups:
        kept = tuple(parameter for parameter in group.parameters if id(parameter) not in spared)
        if kept:
            left.append(attrs.evolve(group, parameters=kept))
    return left


def joined_phases(
    baseline: Baseline,
    retrieval: RetrievalStrategy | None,
    constraints: Mapping[str, Constraint],
    names: tuple[str, str],
    context: TaskContext,
) -> list[tuple[str, Phase]]:
    """Return the phases of a task in order, each after the name of its owner.

    Those of the retrieval strategy come first; it and the constraints join the baseline's host phases. The
    last one is a frozen expert's.

    Args:
        baseline: The baseline.
        retrieval: The retrieval strategy, None where the baseline makes no hard choice.
        constraints: The constraints by name.
        names: Of baseline and retrieval strategy, for messages.
        context: The task, which has its set.

    Raises:
        ContractError: One of them returns something other than phases.
    """
    owner, strategy = names
    phases: list[tuple[str, Phase]] = []
    joining: tuple[str, RetrievalStrategy] | None = None
    if retrieval is not None:
        joining = (strategy, retrieval)
        for phase in require_phases(retrieval.phases(context), strategy):
            phases.append((strategy, phase))
    for phase in require_phases(baseline.phases(context), owner):
        phases.append((owner, phase))
    last = expert_phase(baseline, context)
    if last is not None:
        phases.append(("the frozen expert", last))
    rules = {f"constraint {name!r}": constraint for name, constraint in constraints.items()}
    joined: list[tuple[str, Phase]] = []
    for whose, phase in phases:
        if isinstance(phase, TrainingPhase):
            phase = hosted(phase, context, owner, joining, rules)
        joined.append((whose, phase))
    return joined


@contextmanager
def only_trainable(modules: Sequence[nn.Module], trained: Sequence[nn.Parameter]) -> Iterator[None]:
    """Let only the given parameters require a gradient within the block, and none of the modules' after it.

    Within the block the modules are in training mode, after it in evaluation mode.

    Args:
        modules: The modules that learn.
        trained: The parameters to train.
    """
    # a phase may train parameters that lie in none of the modules
    parameters = list(trained)
    for module in modules:
        parameters += module.parameters()
    for parameter in parameters:
        parameter.requires_grad_(False)
    for parameter in trained:
        parameter.requires_grad_(True)
    for module in modules:
        module.train()
    try:
        yield
    finally:
        for module in modules:
            module.eval()
        for parameter in parameters:
            parameter.requires_grad_(False)
            parameter.grad = None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state as ``"<parameter>.<name>"`` tensors."""
    tensors: dict[str, Tensor] = {}
    for number, entry in optimizer.state_dict()["state"].items():
        for name, value in entry.items():
            if value is not None:
                # a copy: the optimizer goes on while the checkpoint is written
                tensors[f"{number}.{name}"] = torch.as_tensor(value).detach().clone()
    return tensors


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore what :func:`optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value.clone()
    whole = optimizer.state_dict()
    optimizer.load_state_dict({"state": state, "param_groups": whole["param_groups"]})


def epoch_order(images: ImageSet, phase: TrainingPhase, seed: int) -> list[list[int]]:
    """Return the shuffled positions of one epoch, batch by batch."""
    generator = torch.Generator().manual_seed(seed)
    shuffled: list[int] = torch.randperm(len(images), generator=generator).tolist()
    batches = chunks(shuffled, phase.batch_size)
    if phase.drop_last and len(batches) > 1 and len(batches[-1]) < phase.batch_size:
        batches.pop()
    return batches


def train_phase(
    phase: TrainingPhase,
    context: TaskContext,
    images: ImageSet,
    *,
    owner: str,
    engine: Engine,
    protection: Protection,
    reporter: Reporter,
    progress: PhaseProgress,
    after_step: Callable[[torch.optim.Optimizer, PhaseProgress], None],
    after_epoch: Callable[[torch.optim.Optimizer, PhaseProgress], None],
    steps: int | None = None,
    untrained: bool = False,
) -> int:
    """Train one phase from ``progress`` to its end.

    Each rank takes a slice of every batch, and all take the same optimizer step (:mod:`lw2g.runtime.ranks`).

    Args:
        phase: What to train.
        context: The task.
        images: The task's training images.
        owner: The component whose phase it is, for messages.
        engine: Device and precision.
        protection: Constraints on the phase's sites.
        reporter: Told about every step and epoch.
        progress: Where to start; updated as the phase goes on.
        after_step: Called after every step but an epoch's last; may raise to stop there.
        after_epoch: Called after every epoch.
        steps: Number of steps, counted from ``progress``, to stop after; None: at the end of the phase.
        untrained: Whether the run has trained nothing before this phase.

    Returns:
        Number of images of the whole phase, before ``progress`` and after it; 0 if it is skipped.

    Raises:
        ConfigError: A loss is not finite, or parameters are not after an epoch.
    """
    if not phase.wanted():
        return 0
    optimizer = phase.build_optimizer()
    base = [group["lr"] for group in optimizer.param_groups]
    left = sys.maxsize if steps is None else steps
    if progress.optimizer:
        load_optimizer(optimizer, progress.optimizer)
    for epoch in range(progress.epoch, phase.epochs):
        if not left:
            break
        seed = derive_seed(context.seed, "task", context.task.index, phase.name, epoch)
        for group, lr in zip(optimizer.param_groups, base, strict=True):
            group["lr"] = phase.schedule(lr, epoch, phase.epochs)
        order = epoch_order(images, phase, seed)
        of_epoch = sum(map(len, order))
        before = sum(map(len, order[: progress.step]))
        began = time.perf_counter()
        done = 0
        total_loss = torch.zeros((), device=engine.device)  # on the device: to read it would wait
        todo = order[progress.step :][:left]
        left -= len(todo)
        where = f"epoch {epoch + 1} of phase {phase.name!r} of task {context.task.index + 1}"
        watch = LossWatch(phase, where, engine.device, untrained=untrained and not epoch)
        progress.require_sound = watch.require_sound
        shares = [ranks.share(positions) for positions in todo]
        batches = images.batches([of_rank for of_rank, _ in shares], seed=seed)
        for whole, (_, weight), batch in zip(todo, shares, batches, strict=True):
            # seeded by the step, so that a run taken up within an epoch draws what it would have drawn
            # and by the rank: each draws for other images of the batch
            engine.seed(derive_seed(seed, progress.step) + ranks.number())
            losses = _backward(phase, batch, optimizer, owner, engine)
            losses = ranks.average(phase.trained, losses, weight)
            watch.see(progress.step, losses)
            _step(phase, optimizer, protection)
            total_loss += losses["all together"].detach() * len(whole)
            done += len(whole)
            progress.step += 1
            if progress.step < len(order):
                after_step(optimizer, progress)
            reporter.advance(
                before + done,
                of_epoch,
                epoch=epoch,
                epochs=phase.epochs,
                loss=partial(_mean, total_loss, done),
                images_per_second=done / (time.perf_counter() - began),
            )
        if progress.step < len(order):
            break  # the steps are done within an epoch
        engine.synchronize()  # or the speed would be that of the queue
        watch.require_sound_parameters()
        speed = done / max(time.perf_counter() - began, 1e-9)  # a clock may not have ticked
        progress.epoch = epoch + 1
        progress.step = 0
        reporter.send(
            EpochEnded(
                task=context.task.index,
                phase=phase.name,
                epoch=epoch,
                epochs=phase.epochs,
                loss=float(total_loss) / max(done, 1),
                lr=optimizer.param_groups[0]["lr"],
                images_per_second=speed,
            )
        )
        after_epoch(optimizer, progress)
    # whatever the seed: an epoch has as many images in any order
    return phase.epochs * sum(map(len, epoch_order(images, phase, seed=0)))


def _backward(
    phase: TrainingPhase, batch: Batch, optimizer: torch.optim.Optimizer, owner: str, engine: Engine
) -> dict[str, Tensor]:
    """Leave a batch's gradients at the trained parameters, and return its losses by what they are of."""
    with engine.autocast(), torch.enable_grad():
        output = require_step(phase.step(batch), phase, owner)
    require_graph(output.loss, phase.name, owner)
    optimizer.zero_grad(set_to_none=True)
    output.loss.backward()  # type: ignore[no-untyped-call]
    losses = dict(output.parts) or {owner: output.loss}
    losses["all together"] = output.loss
    return losses


def _mean(total: Tensor, count: int) -> float:
    return float(total) / count


def _step(phase: TrainingPhase, optimizer: torch.optim.Optimizer, protection: Protection) -> None:
    """Take one optimizer step under the constraints."""
    # clipping first: the norm is that of the gradient as the loss gives it
    if phase.clip_norm is not None:
        nn.utils.clip_grad_norm_(phase.trained, phase.clip_norm)
    if phase.host:
        protection.after_backward()
        protection.before_step()
    optimizer.step()
    if phase.adjust is not None:
        with torch.no_grad():
            phase.adjust()
    if phase.host:
        protection.after_step()
