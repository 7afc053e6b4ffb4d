"""Checks of what components return, before lw2g makes a decision or a number of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import cast

from torch import Tensor, nn

from lw2g.config.structure import is_writable
from lw2g.errors import ConfigError, ContractError, DataError, shown
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.growth import Decision, Grow, Measurement, Merge, Reuse
from lw2g.interfaces.phase import ComputePhase, Phase, StepOutput, TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.site import Site
from lw2g.interfaces.stream import Benchmark, TaskStream, Transforms
from lw2g.runtime.boundary import given_at
from lw2g.vit.fingerprint import BackboneFingerprint

__all__ = [
    "require_a_score_each",
    "require_decision",
    "require_finite",
    "require_graph",
    "require_measurements",
    "require_mergeable",
    "require_phases",
    "require_probe_graph",
    "require_set",
    "require_several_classes",
    "require_sound",
    "require_step",
    "require_width",
    "stream_of",
    "transforms_of",
]


def stream_of(benchmark: Benchmark, name: str) -> TaskStream:
    """Return the stream of a benchmark.

    Raises:
        ContractError: It gives something else, or one whose texts are none.
        DataError: A class or a domain has a name that no record can hold.
    """
    stream: object = benchmark.stream()
    whose = f"benchmark {name!r}"
    if not isinstance(stream, TaskStream):
        raise ContractError(f"{whose}, stream: returned {shown(stream)}", "return a TaskStream", whose)
    # what a record and a terminal show, and nobody looks at before a run has learned everything
    texts: dict[str, object] = {
        "fingerprint": [stream.fingerprint],
        "class_names": stream.class_names,
        "domain": [task.domain for task in stream.tasks],
        "deviations": stream.deviations,
        "notes": stream.notes,
    }
    for field, values in texts.items():
        sound = isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)
        if not sound or (field == "class_names" and "" in stream.class_names):
            raise ContractError(f"{whose}, stream: {field} holds {shown(values)}", "give texts", whose)
    _require_writable_names(stream)
    return stream


def _require_writable_names(stream: TaskStream) -> None:
    """Refuse names of classes and domains that no file can hold."""
    # no more than this is asked: names with control characters stand in records, and are shown as letters
    named = [("class", name) for name in stream.class_names]
    named += [("domain", task.domain) for task in stream.tasks]
    for what, name in named:
        if not is_writable(name):
            raise DataError(
                f"benchmark: no {what} can be called {shown(name)}",
                "give it a name without NUL and broken UTF-8",
            )


def transforms_of(benchmark: Benchmark, name: str, known: BackboneFingerprint) -> Transforms:
    """Return the transforms of a benchmark for the input of a backbone.

    Raises:
        ContractError: It gives something else.
    """
    transforms: object = benchmark.transforms(known.image_size, known.mean, known.std)
    if all(callable(getattr(transforms, use, None)) for use in ("train", "test")):
        return cast(Transforms, transforms)
    whose = f"benchmark {name!r}"
    raise ContractError(f"{whose}, transforms: returned {shown(transforms)}", "return Transforms", whose)


def require_several_classes(task: int, classes: int, baseline: str) -> None:
    """Refuse to train on one class alone: the loss over it is 0, and so is its gradient.

    Raises:
        ConfigError: The task has one class.
    """
    if classes == 1:
        raise ConfigError(
            f"task {task + 1} has one class, and {baseline} learns nothing from a loss over one class alone",
            "use 'simple-cil', or 'ranpac' with adapt = 'none', or give tasks more classes",
        )


def require_mergeable(baseline: Baseline, name: str) -> None:
    """Refuse to merge sets under a trained head, which would fit the copy and not the merged set.

    Raises:
        ConfigError: No head in closed form predicts.
    """
    if baseline.closed_form is None:
        raise ConfigError(
            f"baseline {name!r} cannot merge sets: its trained head fits the copy, not the merged set",
            "choose a head in closed form, such as baseline.head=lda with baseline.head_carry=affine",
        )


def require_a_score_each(scores: object, shape: tuple[int, int], whose: str) -> Tensor:
    """Return retrieval's scores if there is one per query and seen task; do not wait for the device.

    Args:
        scores: What ``scores`` returned.
        shape: Number of queries and of seen tasks.
        whose: The strategy's name, for the message.

    Raises:
        ContractError: It is something else.
    """
    if isinstance(scores, Tensor):
        if scores.shape == shape and scores.is_floating_point():
            return scores
        answer = f"{scores.dtype} {list(scores.shape)}"
    else:
        answer = shown(scores)
    raise ContractError(
        f"{whose}: scores returned {answer}",
        f"return floating numbers {list(shape)}: one per query and seen task",
        whose,
    )


def require_sound(suits: Tensor, samples: Sequence[str], whose: str) -> None:
    """Refuse samples whose best score is not finite; wait for the device.

    Args:
        suits: Scores of each sample, ``[N, sets]``.
        samples: What the rows belong to.
        whose: The retrieval strategy's name, for the message.

    Raises:
        ContractError: There is one.
    """
    sound = suits.amax(dim=1).isfinite()
    if not bool(sound.all()):
        first = samples[int((~sound).int().argmax())]
        raise ContractError(
            f"{whose}: scores of sample {first!r} are not finite",
            "return a number for each task, minus infinity only for one that is out of the question",
            whose,
        )


def require_set(made: object, source: nn.Module | None, whose: str) -> nn.Module:
    """Return the new parameter set of a baseline.

    Args:
        made: What ``new_set`` returned.
        source: What it was given to start from.
        whose: The baseline's name, for the message.

    Raises:
        ContractError: It gives something else, or a set that the pool has.
    """
    if not isinstance(made, nn.Module):
        what = f"{whose}, new_set: returned {shown(made)}"
        raise ContractError(what, "return a torch Module with the set's parameters", whose)
    if source is not None and any(made is old for old in source.modules()):
        what = f"{whose}, new_set: returned the set that it starts from"
        raise ContractError(what, "return a copy (copy.deepcopy), which trains alone", whose)
    return made


def require_phases(phases: object, whose: str) -> list[Phase]:
    """Return the phases of a component for a task.

    Raises:
        ContractError: It gives something else.
    """
    if isinstance(phases, Sequence) and all(
        isinstance(phase, TrainingPhase | ComputePhase) for phase in phases
    ):
        return list(phases)
    # the text of a phase is that of its tensors
    told = f"a {type(phases).__name__} of them" if "Phase(" in repr(phases) else shown(phases)
    raise ContractError(
        f"{whose}, phases: returned {told}", "return a list of TrainingPhase and ComputePhase", whose
    )


def require_step(output: object, phase: TrainingPhase, whose: str) -> StepOutput:
    """Return the output of a phase's step.

    Args:
        output: What the step returned.
        phase: The phase.
        whose: The owner's name, for the message.

    Raises:
        ContractError: It is no StepOutput with a scalar loss.
    """
    if isinstance(output, StepOutput):
        if isinstance(output.loss, Tensor) and not output.loss.ndim:
            return output
        if isinstance(output.loss, Tensor):
            returned = f"a loss of shape {list(output.loss.shape)}"
        else:
            returned = f"the loss {shown(output.loss)}"
    else:
        returned = shown(output)
    raise ContractError(
        f"{whose}, step: returned {returned}{given_at(phase.step)}",
        "return a StepOutput with a scalar tensor as loss",
        whose,
    )


def require_graph(loss: Tensor, phase: str, whose: str) -> None:
    """Refuse a loss without gradients.

    Raises:
        ContractError: It has none.
    """
    if not loss.requires_grad:
        raise ContractError(
            f"{whose}, step: the loss of phase {phase!r} has no gradient",
            "compute it from the parameters of the phase's groups, with gradients switched on",
            whose,
        )


def require_probe_graph(features: Tensor, loss: Tensor, whose: str) -> None:
    """Refuse a probe loss without gradients: evidence is its gradient at the sites of a set.

    Args:
        features: Of which it was computed, ``[B, F]``.
        loss: The probe loss.
        whose: The baseline's name, for the message.

    Raises:
        ContractError: It has none.
    """
    if loss.requires_grad:
        return
    if features.requires_grad:
        what = "probe_loss: returned a loss without a gradient"
        remedy = "compute it from the features, without detach() and torch.no_grad()"
    else:
        what = "features: returned features without a gradient"
        remedy = "compute them from the set's parameters, without detach() and torch.no_grad()"
    raise ContractError(f"{whose}, {what}", remedy, whose)


def require_width(site: Site, width: int, whose: str) -> None:
    """Refuse a site whose rows are not as wide as its activation.

    Args:
        site: The site.
        width: That of the activation.
        whose: The baseline's name, for the message.

    Raises:
        ContractError: They differ.
    """
    shape = list(site.view(site.parameter).shape)
    if shape[-1:] != [width]:
        method = "sites" if site.owner == "set" else "shared_sites"
        raise ContractError(
            f"{whose}, {method}: site {site.name!r} is {shape}, but its activation is {width} "
            f"wide (tap {str(site.activation.tap)!r})",
            "give the axis that multiplies the activation last, or map the activation",
            whose,
        )


def require_finite(
    logits: Tensor, features: Tensor, samples: Sequence[str], baseline: str, head: str
) -> None:
    """Refuse logits of seen classes that are not finite; wait for the device.

    Args:
        logits: Of the seen classes, ``[B, C]``.
        features: Of which they were made, ``[B, ...]``.
        samples: What the rows belong to.
        baseline: The baseline's name, for the message.
        head: That of the head that predicts; empty if it is the baseline's.

    Raises:
        ContractError: There is one.
    """
    bad = ~logits.isfinite().all(dim=1)
    if bool(bad.any()):
        row = int(bad.int().argmax())
        what = f"logits of sample {samples[row]!r} are not finite"
        if head and bool(features[row].isfinite().all()):
            remedy = "its features are: look at what `solve` and `score` return, and at what the sums hold"
            raise ContractError(f"{head}: {what}", remedy, head)
        remedy = "look at its features and its head, or lower baseline.lr"
        raise ContractError(f"{baseline}: {what}", remedy, baseline)


def require_decision(policy: str, decision: object, pool: Pool) -> Decision:
    """Return a policy's decision.

    Raises:
        ContractError: It is no decision, or reuses a set that is not live.
    """
    remedy = f"return Grow(), or Reuse(set) or Merge(set, weight) with one of the live sets {list(pool.ids)}"
    if not pool.ids:
        remedy = "there is no set to reuse yet: return Grow()"
    match decision:
        case Grow():
            return decision
        case Reuse(set=int(chosen)) | Merge(set=int(chosen)) if _is_live(chosen, pool):
            return decision
        case Reuse(set=chosen) | Merge(set=chosen):
            what = f"reuses set {shown(chosen)}"
        case _:
            what = f"returned {shown(decision)}"
    raise ContractError(
        f"policy {policy!r}, decide: {what}",
        remedy,
        f"policy {policy!r}",
    )


def _is_live(number: int, pool: Pool) -> bool:
    # True is an int, and equal to 1: a policy that returns a verdict for a set is not understood as that set
    return number in pool.ids and not isinstance(number, bool)


def require_measurements(measure: str, values: object, candidates: Set[int]) -> Mapping[int, Measurement]:
    """Return a measure's values by candidate set.

    Raises:
        ContractError: It is something else, or has a set that is no candidate.
    """
    if isinstance(values, Mapping) and all(isinstance(value, Measurement) for value in values.values()):
        strange = values.keys() - candidates
        if not strange:
            return values
        what = f"speaks of set {shown(min(strange))}"
    else:
        what = f"returned {shown(values)}"
    raise ContractError(
        f"evidence {measure!r}, measure: {what}",
        f"return a Measurement for each of the candidates {sorted(candidates)} that it can measure",
        f"evidence {measure!r}",
    )
