"""Small runs on the tiny benchmark, through the same code as real ones, with notes of what they went through.

Three tasks of two classes: the first gets a set, the second goes on with it, the third gets another (a fixed
baseline has one set), with evidence collected and the orthogonal constraint in force.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from torch import Tensor, nn

from lw2g.config.model import DEFAULT_FIXED_POLICY, DEFAULT_POLICY
from lw2g.config.resolve import Resolved, resolve
from lw2g.geometry.subspace import Subspace
from lw2g.interfaces.component import EvidenceComponent
from lw2g.interfaces.growth import Decision, Evidence, Grow, Reuse
from lw2g.interfaces.site import Site
from lw2g.interfaces.tracker import EpochEnded, Event, PhaseStarted, TaskDecided, TaskEvaluated
from lw2g.testing.bench import (
    changed,
    everything,
    host_of,
    named_modules,
    outcome,
    retrieval_of,
    wiring,
)
from lw2g.testing.kit import NotApplicable, Subject
from lw2g.training.evaluation.evaluator import Predictions
from lw2g.training.files.checkpoint import Checkpoint, CheckpointStore
from lw2g.training.files.record import RunDirectory
from lw2g.training.files.state import restore
from lw2g.training.progress import Reporter
from lw2g.training.run import Run
from lw2g.training.session import Session, open_session

__all__ = [
    "Cut",
    "Learned",
    "SmallRun",
    "evaluate",
    "first_difference",
    "interrupted",
    "learned",
    "opened",
    "repeated",
    "same_predictions",
    "whole",
]

_QUICK: Mapping[str, Any] = {
    "run.evaluation_batch": 16,
    "growth.images": 16,
    "growth.energy": 0.95,
    "benchmark.random_crops": True,
}
_EPOCHS, _BATCH = 2, 8


@attrs.frozen(kw_only=True)
class Cut:
    """Where a run is interrupted: at the end of an epoch, or (epoch None) as a phase starts."""

    task: int
    phase: str
    epoch: int | None = None


class _CutError(Exception):
    """Stands for a power cut: nothing is written after it."""


@attrs.frozen(kw_only=True, eq=False)
class Protected:
    """A site as a task has left it.

    Attributes:
        rows: The parameter's rows there, ``[rows, dim]``.
        space: The space of old tasks, None without one.
    """

    rows: Tensor
    space: Subspace | None


@attrs.frozen(kw_only=True, eq=False)
class Learned:
    """A run after one of its tasks.

    Attributes:
        state: Every parameter and buffer of all modules.
        predictions: Of the test samples of all seen tasks.
        features: Of the same samples.
        sites: By owner and name, of the task's set and shared.
    """

    state: dict[str, Tensor]
    predictions: Predictions
    features: Tensor
    sites: dict[str, Protected]


@attrs.frozen(kw_only=True, eq=False)
class SmallRun:
    """A run that has come to its end.

    Attributes:
        resolved: Its configuration.
        session: What it was run with, as it stands at the end.
        after: By task.
        phases: ``(task, phase, state at its start)`` in order; a task's first entry is named ``"decided"``.
        epochs: Epochs that ended, in order.
        checkpoints: By task.
        wires: Modules and hooks of the backbone before the first task.
        decisions: The record's entries, by task.
    """

    resolved: Resolved
    session: Session
    after: dict[int, Learned]
    phases: list[tuple[int, str, dict[str, Tensor]]]
    epochs: list[Cut]
    checkpoints: dict[int, Checkpoint]
    wires: dict[str, frozenset[str]]
    decisions: dict[int, dict[str, Any]]

    @property
    def tasks(self) -> int:
        """Number of tasks of its stream."""
        return len(self.session.stream.tasks)


class _Scripted:
    """The policy of small runs: a set for the first task, on with it, then another set."""

    margin = 0.0
    burden = None

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        return Reuse(0) if evidence.task == 1 else Grow()


class _Notes:
    """Notes down what a run goes through, and may cut it."""

    def __init__(self, session: Session, files: RunDirectory, cut: Cut | None) -> None:
        self._session, self._files, self._cut = session, files, cut
        self.after: dict[int, Learned] = {}
        self.phases: list[tuple[int, str, dict[str, Tensor]]] = []
        self.epochs: list[Cut] = []
        self.decisions: dict[int, dict[str, Any]] = {}

    def on_event(self, event: Event) -> None:
        at: Cut | None = None
        match event:
            case TaskDecided():
                self.phases.append((event.task, "decided", self._state()))
                self.decisions[event.task] = event.decision
            case PhaseStarted():
                self.phases.append((event.task, event.phase, self._state()))
                at = Cut(task=event.task, phase=event.phase)
            case EpochEnded():
                at = Cut(task=event.task, phase=event.phase, epoch=event.epoch)
                self.epochs.append(at)
            case TaskEvaluated():
                self.after[event.task] = self._learned(event.task)
        if at is not None and at == self._cut:
            raise _CutError

    def close(self) -> None:
        """Nothing to close."""

    def _state(self) -> dict[str, Tensor]:
        return everything(_modules(self._session))

    def _learned(self, task: int) -> Learned:
        session = self._session
        predictions = self._files.read_predictions(task)
        set_id = session.pool.task_to_set[task]
        baseline, memory = session.baseline, session.memory
        sites: list[Site] = [*baseline.sites(session.pool[set_id]), *baseline.shared_sites()]
        return Learned(
            state=self._state(),
            predictions=predictions,
            features=session.evaluator.features_of(len(predictions.sample)).clone(),
            sites={
                memory.key(set_id, site): Protected(
                    rows=site.rows(site.parameter).detach().clone(), space=memory.space(set_id, site)
                )
                for site in sites
            },
        )


def whole(subject: Subject) -> SmallRun | Exception:
    """Return the subject's run, done once, or what stopped it."""
    found: SmallRun | Exception = outcome(subject, "small run", lambda: _run(subject))
    return found


def learned(subject: Subject) -> SmallRun:
    """Return the subject's run, done once.

    Raises:
        NotApplicable: It does not come to its end; the check ``learns_a_small_stream`` says why.
    """
    return _unless_failed(whole(subject))


def repeated(subject: Subject) -> SmallRun:
    """Return a second run with the same seed."""
    learned(subject)
    return _unless_failed(outcome(subject, "same run again", lambda: _run(subject)))


def interrupted(subject: Subject) -> SmallRun:
    """Return the run as it ends when it is cut within its second task and resumed in a new session.

    The cut comes late in the last phase that has a second epoch, else before the evaluation.
    """
    first = learned(subject)
    task = min(1, first.tasks - 1)
    late = [at for at in first.epochs if at.task == task and at.epoch]
    cut = late[-1] if late else Cut(task=task, phase="evaluation")
    return _run(subject, cut)


def _unless_failed(found: SmallRun | Exception) -> SmallRun:
    if isinstance(found, Exception):
        raise NotApplicable("a small run does not come to its end; see the check 'learns_a_small_stream'")
    return found


def _run(subject: Subject, cut: Cut | None = None) -> SmallRun:
    resolved = _resolved(subject)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        earlier = None
        if cut is not None:
            earlier = _advance(subject, resolved, directory, cut=cut)
        found = _advance(subject, resolved, directory, resumed=cut is not None)
    if earlier is None:
        return found
    # the first leg has evaluated what came before the cut
    return attrs.evolve(found, after=earlier.after | found.after)


def _advance(
    subject: Subject, resolved: Resolved, directory: Path, *, cut: Cut | None = None, resumed: bool = False
) -> SmallRun:
    """Run from the beginning, or from the newest checkpoint, to the end or to the cut."""
    session = opened(subject, resolved)
    files = RunDirectory(directory)
    store = CheckpointStore(files.checkpoints)
    run = Run(resolved, session, files, store)
    if resumed:
        run.take_up(*store.newest(), standing=False)
    wires = wiring(session.backbone)
    notes = _Notes(session, files, cut)
    with suppress(_CutError):
        run.go_on([notes])
    return SmallRun(
        resolved=resolved,
        session=session,
        after=notes.after,
        phases=notes.phases,
        epochs=notes.epochs,
        checkpoints={task: store.of_task(task) for task in notes.after if task in store.finished},
        wires=wires,
        decisions=notes.decisions,
    )


def opened(subject: Subject, resolved: Resolved, checkpoint: Checkpoint | None = None) -> Session:
    """Open a session under the scripted policy, in the state of a checkpoint if one is given."""
    session = open_session(resolved.config, subject.catalogue)
    if not session.fixed:
        session = attrs.evolve(session, policy=_Scripted())
    if checkpoint is not None:
        restore(session, checkpoint)
    return session


def evaluate(session: Session, task: int) -> tuple[Predictions, Tensor]:
    """Return predictions and features of the test samples of the first tasks, all computed anew."""
    session.evaluator.forget()
    history = [session.info(index) for index in range(task + 1)]
    predictions, _ = session.evaluator.evaluate(
        session.baseline, session.pool, session.retrieval, history, Reporter([], [1] * len(history))
    )
    return predictions, session.evaluator.features_of(len(predictions.sample)).clone()


def first_difference(one: Learned, other: Learned) -> str | None:
    """Return the first thing in which two runs differ after a task, None if they agree."""
    if moved := changed(one.state, other.state):
        # retrieval first: its loss may reach the baseline (by a clipped norm), seldom the other way round
        return repr(min(moved, key=lambda name: not name.startswith("retrieval.")))
    if changed({"": one.features}, {"": other.features}):
        return "features of test samples"
    return None if same_predictions(one.predictions, other.predictions) else "predictions"


def same_predictions(one: Predictions, other: Predictions) -> bool:
    """Whether two evaluations agree on every sample, class, task and set."""
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in attrs.fields(Predictions)
    )


def _modules(session: Session) -> dict[str, nn.Module]:
    return named_modules(session.baseline, session.pool, session.retrieval)


def _resolved(subject: Subject) -> Resolved:
    baseline, retrieval = host_of(subject), retrieval_of(subject)
    alone = baseline.growth == "fixed" or isinstance(subject.component, EvidenceComponent)
    growth = DEFAULT_FIXED_POLICY if alone else DEFAULT_POLICY
    # bits are compared
    overrides = {**_QUICK, "run.device": subject.device, "run.deterministic": subject.device != "cpu"}
    if isinstance(subject.component, EvidenceComponent):
        name = subject.component.name
        overrides["growth.measures"] = [name]
        chosen = {**_short(subject.component.config), **subject.options}
        overrides |= {f"evidence.{name}.{key}": value for key, value in chosen.items()}
    for section, component in (("baseline", baseline), ("retrieval", retrieval)):
        if component is not None:
            overrides |= {f"{section}.{key}": value for key, value in _short(component.config).items()}
            own = subject.options if component is subject.component else {}
            overrides |= {f"{section}.{key}": value for key, value in own.items()}
    return resolve(
        subject.catalogue,
        overrides=overrides,
        baseline=baseline.name,
        retrieval=None if retrieval is None else retrieval.name,
        policy=growth,
        constraints=["orthogonal"],
        benchmark="tiny",
        backbone="tiny",
    )


def _short(config: type[Any]) -> dict[str, int]:
    """Return options that make training short: two epochs or steps of whatever has them, small batches."""
    found = {}
    for field in attrs.fields(config):
        if (
            field.name.endswith(("epochs", "steps"))
            and isinstance(field.default, int)
            and field.default > _EPOCHS
        ):
            found[field.name] = _EPOCHS
        elif field.name == "batch_size":
            found[field.name] = _BATCH
    return found
