"""What components answer, looked at before a decision or a number is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import torch
from torch import Tensor

from lw2g.errors import ContractError, shown
from lw2g.interfaces.growth import Decision, Grow, Measured, Reuse
from lw2g.interfaces.phase import ComputePhase, Phase, StepOutput, TrainingPhase
from lw2g.interfaces.pool import Pool

__all__ = [
    "require_decision",
    "require_finite",
    "require_graph",
    "require_measured",
    "require_one_task_each",
    "require_phases",
    "require_scores",
    "require_seen",
    "require_step",
]


def require_one_task_each(tasks: object, count: int, whose: str) -> Tensor:
    """Return what a retrieval strategy answered, if it is one whole number per query; waits for no device.

    Args:
        tasks: What ``retrieve`` returned.
        count: Number of queries.
        whose: The strategy's name, for the message.

    Raises:
        ContractError: It is something else.
    """
    if isinstance(tasks, Tensor):
        if tasks.shape == (count,) and tasks.dtype in (torch.int64, torch.int32):
            return tasks
        found = f"{tasks.dtype} {list(tasks.shape)}"
    else:
        found = shown(tasks)
    raise ContractError(
        f"{whose}: retrieve returned {found}; return the task id of each query, int64 [{count}]"
    )


def require_seen(tasks: Tensor, seen: Sequence[int], whose: str) -> None:
    """Refuse retrieved tasks that nobody has learned yet; waits for the device.

    Raises:
        ContractError: There is one.
    """
    strange = tasks[~torch.isin(tasks, torch.tensor(list(seen), device=tasks.device))]
    if len(strange):
        raise ContractError(
            f"{whose}: retrieve returned task {int(strange[0])}, and {shown(list(seen))} are seen; return "
            "one of the tasks in 'seen'"
        )


def require_scores(sound: Tensor, samples: Sequence[str], whose: str) -> None:
    """Refuse samples no task of which has a score; waits for the device.

    Args:
        sound: Whether the best score of each is a finite number, ``[N]``.
        samples: What the rows belong to.
        whose: The retrieval strategy's name, for the message.

    Raises:
        ContractError: There is one.
    """
    if not bool(sound.all()):
        first = samples[int((~sound).int().argmax())]
        raise ContractError(
            f"{whose}: scores of sample {first!r} are not finite; return a number for each task, minus "
            "infinity only for one that is out of the question"
        )


def require_phases(found: object, whose: str) -> list[Phase]:
    """Return the phases that a component gives for a task.

    Raises:
        ContractError: It gives something else.
    """
    if isinstance(found, Sequence) and all(isinstance(one, TrainingPhase | ComputePhase) for one in found):
        return list(found)
    raise ContractError(
        f"{whose}, phases: returned {shown(found)}; return a list of TrainingPhase and ComputePhase"
    )


def require_step(output: object, whose: str) -> StepOutput:
    """Return what the step of a phase gave.

    Raises:
        ContractError: It is no StepOutput with a scalar loss.
    """
    if isinstance(output, StepOutput):
        if isinstance(output.loss, Tensor) and output.loss.numel() == 1:
            return output
        loss = output.loss
        found = (
            f"a loss of shape {list(loss.shape)}" if isinstance(loss, Tensor) else f"the loss {shown(loss)}"
        )
    else:
        found = shown(output)
    raise ContractError(f"{whose}, step: returned {found}; return a StepOutput with a scalar tensor as loss")


def require_graph(loss: Tensor, phase: str, whose: str) -> None:
    """Refuse a loss without gradients.

    Raises:
        ContractError: It has none.
    """
    if not loss.requires_grad:
        raise ContractError(
            f"{whose}, step: the loss of phase {phase!r} has no gradient; compute it from the parameters of "
            "the phase's groups, with gradients switched on"
        )


def require_finite(logits: Tensor, samples: Sequence[str], whose: str) -> None:
    """Refuse logits of seen classes that are no finite numbers; waits for the device.

    Args:
        logits: Of the seen classes, ``[B, C]``.
        samples: What the rows belong to.
        whose: The baseline's name, for the message.

    Raises:
        ContractError: There is one.
    """
    bad = ~logits.isfinite().all(dim=1)
    if bool(bad.any()):
        first = samples[int(bad.int().argmax())]
        raise ContractError(
            f"{whose}: logits of sample {first!r} are not finite; look at its features and its head, or "
            "lower baseline.lr"
        )


def require_decision(policy: str, decision: object, pool: Pool) -> Decision:
    """Return a policy's decision.

    Raises:
        ContractError: It is none, or reuses a set that does not live.
    """
    match decision:
        case Grow():
            return decision
        case Reuse(set=int(chosen)) if chosen in pool.ids and not isinstance(chosen, bool):
            return decision
        case Reuse(set=chosen):
            what = f"reuses set {shown(chosen)}"
        case _:
            what = f"returned {shown(decision)}"
    raise ContractError(
        f"policy {policy!r}, decide: {what}; return Grow(), or Reuse(set) with one of the live sets "
        f"{list(pool.ids)}"
    )


def require_measured(measure: str, found: object, candidates: Set[int]) -> Mapping[int, Measured]:
    """Return what a measure says of the candidates, by set.

    Raises:
        ContractError: It is something else, or of a set that is no candidate.
    """
    if isinstance(found, Mapping) and all(isinstance(one, Measured) for one in found.values()):
        strange = found.keys() - candidates
        if not strange:
            return found
        what = f"speaks of set {shown(min(strange))}"
    else:
        what = f"returned {shown(found)}"
    raise ContractError(
        f"evidence {measure!r}, measure: {what}; return a Measured for each of the candidates "
        f"{sorted(candidates)} of which something can be said"
    )
