"""Metrics: the numbers that a run is judged by, as records of what they are and how they are computed.

This module imports no numpy, because every command reads the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import attrs

from lw2g.interfaces.component import QUALIFIER, Component, Kind, NoOptions, lazy

__all__ = ["CORE_METRICS", "DEFINITIONS", "INPUTS", "Metric"]

INPUTS: Mapping[str, str] = {
    "accuracy": (
        "A[i,t] in percent, float64 [T, T], NaN for i > t, for a task without test images, and for every i "
        "where nothing was measured after t (run.evaluate)"
    ),
    "retrieval": "the same for retrieved sets; unknown where the baseline makes no hard choice of a set",
    "samples": "number of test samples of each task, a list of T numbers",
    "task_to_set": "the set that holds each task, a mapping; unknown where sets hold no parameters",
    "planted_groups": "the group of each task, a mapping; unknown where the benchmark plants none",
    "classes": "the classes of each task, T lists; one that comes again is in several",
    "domains": "the domain of each task, a list of T names, empty ones where the stream has no domains",
    "class_accuracy": "accuracy of each class after each task in percent, float64 [C, T], NaN until it comes "
    "and where nothing was measured",
    "true": "of the last evaluation the true class of each test sample of the seen tasks, int [N]",
    "predicted": "the predicted class, int [N]",
    "task": "the sample's task, the first that brought its class in its domain, int [N]",
    "retrieved": "the retrieved task, int [N]; unknown like retrieval",
    "set": "the set used, of several the first choice, int [N]; unknown likewise",
    "rank": "how many sets retrieval prefers to all that own the sample, int [N]; unknown likewise",
    "hard": "where several sets answered, the class that the first choice alone names, int [N]",
    "told": "where all sets answered, the class under the newest set that owns the sample, int [N]",
    "within": "the same among the classes of that task alone, int [N]",
}
"""The inputs of metrics; a run stores enough to compute all of them again."""


def _are_inputs(_instance: object, field: attrs.Attribute[Any], needs: tuple[str, ...]) -> None:
    if strange := set(needs) - INPUTS.keys():
        raise ValueError(f"{field.name}: {min(strange)!r} is none of {', '.join(INPUTS)}")


@attrs.frozen(kw_only=True)
class Metric(Component):
    """A metric. A run computes all installed metrics after every task.

    Runs begun before it was installed do not have it.

    Attributes:
        name: Its name in records and reports.
        summary: Its definition in one line.
        needs: The inputs, by name in :data:`INPUTS`.
        compute: ``compute(*inputs)``, in the order of ``needs``; called only if all of them are known.
            Returns a finite number, or None if the metric is not defined.
        unit: Its unit, such as ``"%"``, if any.
        digits: Number of decimals in reports.
    """

    kind: ClassVar[Kind] = "metric"
    hook: ClassVar[str] = "lw2g_metrics"

    name: str = attrs.field(
        validator=attrs.validators.matches_re(QUALIFIER + r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
    )
    config: type[Any] = NoOptions
    needs: tuple[str, ...] = attrs.field(validator=_are_inputs)
    compute: Callable[..., float | None]
    unit: str = "%"
    digits: int = 2

    @property
    def build(self) -> Callable[..., float | None]:
        """The component's code, under the name that all kinds have for it."""
        return self.compute

    def of(self, inputs: Mapping[str, Any]) -> float | None:
        """Return the value; None if the metric is not defined or one of its inputs is unknown.

        Args:
            inputs: Values by the names of :data:`INPUTS`; None for an unknown one.

        Raises:
            ValueError: The metric returned no finite number.
        """
        values = [inputs[name] for name in self.needs]
        if any(value is None for value in values):
            return None
        number = self.compute(*values)
        if number is None:
            return None
        if not math.isfinite(number):
            raise ValueError(f"expected a finite number or None but got {number!r}")
        # a count stays one in the record; numpy's numbers are not written as JSON
        return number if isinstance(number, int) else float(number)


def _core(name: str, needs: str, summary: str, *, by: str = "", unit: str = "%", digits: int = 2) -> Metric:
    """Return a metric computed by a function of :mod:`lw2g.maths.metrics`: ``by``, or that of its name."""
    compute = lazy(f"lw2g.maths.metrics:{by or name}")
    return Metric(
        name=name, summary=summary, needs=tuple(needs.split()), compute=compute, unit=unit, digits=digits
    )


CORE_METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        _core(
            "faa",
            "accuracy",
            "final average accuracy (elsewhere last accuracy, A_T): mean over tasks i of A[i,T]",
        ),
        _core(
            "faa_samples",
            "accuracy samples",
            "final accuracy over samples: A[i,T] weighted by the test samples of task i",
        ),
        _core(
            "caa",
            "accuracy",
            "cumulative average accuracy (elsewhere average accuracy): mean over t of the mean over i <= t "
            "of A[i,t]",
        ),
        _core(
            "caa_samples",
            "accuracy samples",
            "the same over samples: mean over t of the accuracy after t on all test samples of seen tasks",
        ),
        _core(
            "faa_classes",
            "class_accuracy",
            "final accuracy over classes: mean over seen classes of the accuracy on all their test samples",
        ),
        _core(
            "faa_domains",
            "task true predicted domains",
            "final accuracy over domains: mean over domains of the accuracy on all their test samples",
        ),
        _core(
            "ffm",
            "accuracy",
            "final forgetting measure (elsewhere forgetting), as in the LW2G paper: mean over i < T of "
            "max over i <= t < T of A[i,t] minus A[i,T]",
        ),
        _core(
            "ffm_code",
            "accuracy",
            "forgetting, as in its released code: the maximum includes t = T, so no task counts negative",
        ),
        _core(
            "ffm_absent",
            "class_accuracy classes",
            "forgetting of classes since they were trained last (in task s): mean over classes with s < T of "
            "max over s <= t < T of their accuracy minus that after T",
        ),
        _core(
            "bwt",
            "accuracy",
            "backward transfer: mean over i < T of A[i,T] - A[i,i]; negative where tasks are forgotten",
        ),
        _core(
            "pra",
            "retrieval",
            "retrieval accuracy: mean over tasks of the share of test samples that get a set of a task with "
            "their class and domain (one that owns them)",
        ),
        _core(
            "chance_pra",
            "task_to_set task true classes domains retrieved",
            "PRA under uniform guessing of a task: fewer sets make retrieval easier by construction",
            digits=1,
        ),
        _core(
            "coverage_3",
            "task rank",
            "mean over tasks of the share of samples of which an owning set is among retrieval's first 3",
        ),
        _core(
            "task_accuracy",
            "task predicted classes",
            "mean over tasks of the share of samples whose predicted class is one of their task",
        ),
        _core(
            "faa_hard",
            "task true hard",
            "FAA of the first choice's answer alone (hard routing), where several sets answer",
            by="faa_of_answers",
        ),
        _core(
            "faa_told",
            "task true told",
            "FAA of the answer under the newest set that owns the sample, where all sets answer",
            by="faa_of_answers",
        ),
        _core(
            "faa_within",
            "task true within",
            "the same (faa_told) among the classes of that task alone: what its set has learned",
            by="faa_of_answers",
        ),
        _core(
            "ssp",
            "task_to_set",
            "number of parameter sets in the pool that hold a task",
            unit="",
            digits=1,
        ),
    )
}
"""The metrics of lw2g itself, which every run computes."""

DEFINITIONS: Mapping[str, str] = {
    "A[i,t]": "accuracy on task i after task t, in percent; T is the last task",
    **{name: metric.summary for name, metric in CORE_METRICS.items()},
    "adjusted_rand_index": "agreement of sets with planted groups of tasks: 1 equal, about 0 by chance",
    "feature drift": "mean relative change of test features since the evaluation before (samples that kept "
    "their set)",
}
"""The definition of each number that a run is judged by."""
