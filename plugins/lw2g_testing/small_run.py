"""The small run of the kit: the tiny benchmark on the tiny backbone, through the same code as real runs.

It has three tasks: the first gets a set, the second reuses it, the third gets a new one (a fixed baseline has
one set). The run collects evidence and applies the orthogonal constraint. Checks of training read the run;
checks of forwards use the session that it leaves (:mod:`lw2g_testing.moved_session`). The run is done once
for all checks of a component, and resumed once from the files that it had within its second task.

A component that a baseline's options name (a head, a carry) is checked by a plain run instead
(:func:`require_run`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.config.resolve import Resolved, resolve
from lw2g.disk.checkpoint import Checkpoint, CheckpointStore
from lw2g.disk.predictions import Predictions
from lw2g.disk.record import RunDirectory
from lw2g.interfaces.component import (
    BaselineComponent,
    ConstraintComponent,
    EvidenceComponent,
    RetrievalComponent,
)
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.defaults import (
    DEFAULT_CONSTRAINTS,
    DEFAULT_FIXED_POLICY,
    DEFAULT_POLICY,
    HOST,
    SHARING_HOST,
)
from lw2g.interfaces.growth import Decision, Evidence, Grow, Reuse
from lw2g.interfaces.options import options_of_role
from lw2g.interfaces.tracker import EpochEnded, Event, PhaseStarted, TaskDecided, TaskEvaluated
from lw2g.learning.session import Session, open_session
from lw2g.learning.state import restore
from lw2g.lifecycle.run import Run
from lw2g.lifecycle.runner import start
from lw2g.maths.subspace import Subspace
from lw2g.model.exporting import export_run
from lw2g.model.saved import open_model
from lw2g.runtime.progress import Reporter
from lw2g_testing.cases import ContractViolation, NotApplicable, NotBuilt, Subject
from lw2g_testing.changes import changed, everything, modules_of, same_predictions, wiring

__all__ = [
    "HOST_PHASE",
    "NO_RUN",
    "QUICK",
    "Learned",
    "SmallRun",
    "begin",
    "evaluate",
    "learned",
    "opened",
    "require_run",
    "resumed",
    "run_again",
    "short_options",
    "whole",
]

HOST_PHASE = "prompts"
"""The only phase of the baseline with which other components are checked."""

QUICK: Mapping[str, Any] = {
    "run.evaluation_batch": 16,
    "run.precision": "32-true",
    "growth.images": 16,
    "growth.energy": 0.95,
    "benchmark.train": 4,
    "benchmark.test": 3,
    "benchmark.random_crops": True,
    "backbone.spread": 0.1,
}
_EPOCHS = 2
"""The most epochs, or steps, of a phase; not one: what begins anew with an epoch shows in the second."""
_BATCH = 8
NO_RUN = "a small run does not come to its end; see the check 'learns_a_small_stream'"


# -- configuration ------------------------------------------------------------------------------------------


def _host_of(subject: Subject) -> BaselineComponent:
    if isinstance(subject.component, BaselineComponent):
        return subject.component
    if isinstance(subject.component, ConstraintComponent):
        return subject.catalogue.get("baseline", SHARING_HOST)
    return subject.catalogue.get("baseline", HOST)


def _retrieval_of(subject: Subject) -> RetrievalComponent | None:
    """Return the retrieval strategy of the run: the subject itself, or the baseline's own."""
    if isinstance(subject.component, RetrievalComponent):
        return subject.component
    return subject.catalogue.retrieval_of(_host_of(subject))


def resolved(subject: Subject) -> Resolved:
    """Return the configuration of the subject's short run; off the CPU it has deterministic kernels.

    A baseline or a retrieval strategy stands in it with its own options, evidence as a further measure. For a
    constraint it is the run of a host that shares its sets, without the constraint: checks build that apart.
    The policy is a name alone, in place of which :func:`opened` puts the scripted one.
    """
    baseline = _host_of(subject)
    retrieval = _retrieval_of(subject)
    overrides = {**QUICK, "run.device": subject.device, "run.deterministic": subject.device != "cpu"}
    sections: dict[str, Any] = {"baseline": baseline}
    retrieval_name = None
    if retrieval is not None:
        sections["retrieval"] = retrieval
        retrieval_name = retrieval.name
    policy = DEFAULT_POLICY
    if baseline.growth == "fixed":
        policy = DEFAULT_FIXED_POLICY
    if isinstance(subject.component, EvidenceComponent):
        # measured, whatever the policy reads
        overrides["growth.measures"] = [subject.component.name]
        sections[f"evidence.{subject.component.name}"] = subject.component
        policy = DEFAULT_FIXED_POLICY
    for section, component in sections.items():
        chosen = short_options(component.config)
        if component is subject.component:
            chosen |= subject.options
        for key, value in chosen.items():
            overrides[f"{section}.{key}"] = value
    return resolve(
        subject.catalogue,
        overrides=overrides,
        baseline=baseline.name,
        retrieval=retrieval_name,
        policy=policy,
        constraints=DEFAULT_CONSTRAINTS[:1] if _trains(baseline, overrides) else None,
        benchmark="tiny",
        backbone="tiny",
    )


def _trains(baseline: BaselineComponent, overrides: Mapping[str, Any]) -> bool:
    """Whether a method trains anything at sites after the first task: else there is nothing to constrain."""
    if not baseline.has_sites or baseline.trains_once or baseline.joint:
        return False
    if baseline.without_images is None:
        return True
    return any(overrides.get(f"baseline.{name}") != value for name, value in baseline.without_images.items())


def short_options(config: type[Any]) -> dict[str, Any]:
    """Return options that make training short: at most two epochs or steps, small batches."""
    short: dict[str, Any] = dict.fromkeys(options_of_role(config, "batch"), _BATCH)
    for field in attrs.fields(config):
        is_a_length = field.name.endswith(("epochs", "steps")) and isinstance(field.default, int)
        if is_a_length and field.default > _EPOCHS:
            short[field.name] = _EPOCHS
    return short


class _Scripted:
    """The policy of small runs: a new set, its reuse in the second task, then new sets."""

    margin = 0.0
    burden = None

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        return Reuse(0) if evidence.task == 1 else Grow()


def opened(subject: Subject, checkpoint: Checkpoint | None = None) -> Session:
    """Open a session under the scripted policy, in the state of a checkpoint if one is given.

    Raises:
        NotBuilt: The component cannot be built, or what it needs cannot.
    """
    try:
        session = open_session(resolved(subject).config, subject.catalogue)
    except Exception as error:  # a plugin's code may raise anything
        raise NotBuilt(getattr(subject.component.build, "target", "")) from error
    if not session.parts.growth.fixed:
        growth = attrs.evolve(session.parts.growth, policy=_Scripted())
        session = attrs.evolve(session, parts=attrs.evolve(session.parts, growth=growth))
    if checkpoint is not None:
        restore(session, checkpoint)
    return session


def begin(session: Session, index: int) -> TaskContext:
    """Begin a task as a run does, without evidence, and return its context."""
    session.parts.begin_task(index)
    # as the scripted policy decides: the second task reuses the set of the first
    if len(session.parts.pool) and (session.parts.growth.fixed or index == 1):
        session.parts.pool.reuse(0)
    else:
        torch.manual_seed(session.parts.seed_of(index, "new set"))
        session.parts.pool.grow(session.parts.new_set(session.parts.baseline.source_of(session.parts.pool)))
    images = session.data.image_set([session.data.stream.tasks[index].train], train=False)
    context = session.task_context(index, images)
    if session.parts.retrieval is not None:
        torch.manual_seed(session.parts.seed_of(index, "retrieval"))
        session.parts.retrieval.begin_task(context)
    return context


# -- a run --------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, eq=False)
class Learned:
    """A run after one of its tasks.

    Attributes:
        state: Every parameter and buffer of all modules.
        predictions: Predictions for the test samples of all seen tasks.
        features: Features of the same samples.
        sites: Rows ``[rows, dim]`` and the space of old tasks (None without one) of each site of the task's
            set and each shared site, by owner and name.
    """

    state: dict[str, Tensor]
    predictions: Predictions
    features: Tensor
    sites: dict[str, tuple[Tensor, Subspace | None]]

    def difference(self, other: Learned) -> str | None:
        """Return the name of the first difference from another run after this task; None if they agree."""
        moved = changed(self.state, other.state)
        if moved:
            # retrieval first: its loss may affect the baseline (by a clipped norm), rarely the reverse
            return repr(min(moved, key=lambda name: not name.startswith("retrieval.")))
        if changed({"": self.features}, {"": other.features}):
            return "features of test samples"
        if not same_predictions(self.predictions, other.predictions):
            return "predictions"
        return None


@attrs.frozen(kw_only=True, eq=False)
class SmallRun:
    """A finished run.

    Attributes:
        session: Its session at the end.
        after: The run after each task.
        phases: ``(task, phase, state at its start)`` in order; a task's first entry is named ``"decided"``.
        checkpoints: The checkpoint of each task.
        wires: Modules and hooks of the backbone before the first task.
        decisions: The record's entry for each task.
        midway: The files of its directory within the second task, by path: at the end of the last epoch of a
            phase with several, else before the evaluation.
    """

    session: Session
    after: dict[int, Learned]
    phases: list[tuple[int, str, dict[str, Tensor]]]
    checkpoints: dict[int, Checkpoint]
    wires: dict[str, frozenset[str]]
    decisions: dict[int, dict[str, Any]]
    midway: dict[Path, bytes]

    @property
    def tasks(self) -> int:
        """Number of tasks of its stream."""
        return len(self.session.data.stream.tasks)

    @property
    def unmoved(self) -> str:
        """A parameter of baseline or sets that no task has changed, such as that of a head; empty if none."""
        states = [state for _, _, state in self.phases]
        states.append(self.after[self.tasks - 1].state)
        for owner, module in modules_of(self.session).items():
            for name, _ in module.named_parameters(prefix=owner):
                first, *others = [state[name] for state in states if name in state]
                if others and owner != "retrieval" and all(torch.equal(first, other) for other in others):
                    return name
        return ""


class _Notes:
    """Records the events of a run."""

    def __init__(self, session: Session, files: RunDirectory, store: CheckpointStore) -> None:
        self._session = session
        self._files = files
        self._store = store
        self.after: dict[int, Learned] = {}
        self.phases: list[tuple[int, str, dict[str, Tensor]]] = []
        self.decisions: dict[int, dict[str, Any]] = {}
        self.midway: dict[Path, bytes] = {}

    def on_event(self, event: Event) -> None:
        """Keep what checks look at: the state at each phase, decisions, files in the middle, and results."""
        match event:
            case TaskDecided():
                self.phases.append((event.task, "decided", everything(modules_of(self._session))))
                self.decisions[event.task] = event.decision
            case PhaseStarted():
                self.phases.append((event.task, event.phase, everything(modules_of(self._session))))
                if event.task == 1 and event.phase == "evaluation" and not self.midway:
                    self._keep_files()
            case EpochEnded(task=1) if event.epoch:
                self._keep_files()
            case TaskEvaluated():
                self.after[event.task] = self._learned(event.task)

    def _keep_files(self) -> None:
        self._store.wait()  # checkpoints are written behind the run
        root = self._files.path
        self.midway = {}
        for path in root.rglob("*"):
            if path.is_file():
                self.midway[path.relative_to(root)] = path.read_bytes()

    def close(self) -> None:
        """Nothing to close."""

    def _learned(self, task: int) -> Learned:
        """Return what a task has left: state, predictions, test features, rows and spaces of sites."""
        session = self._session
        parts = session.parts
        predictions = self._files.read_predictions(task)
        set_id = parts.pool.task_to_set[task]
        sites: dict[str, tuple[Tensor, Subspace | None]] = {}
        for site in (*parts.baseline.sites(parts.pool[set_id]), *parts.baseline.shared_sites()):
            rows = site.rows(site.parameter).detach().clone()
            sites[parts.memory.key(set_id, site)] = (rows, parts.memory.space(set_id, site))
        return Learned(
            state=everything(modules_of(session)),
            predictions=predictions,
            features=session.data.evaluator.features_of(len(predictions.sample)).clone(),
            sites=sites,
        )


def whole(subject: Subject) -> SmallRun | Exception:
    """Return the subject's run, done once, or the error that stopped it."""

    def attempt() -> SmallRun | Exception:
        try:
            return run_again(subject)
        except Exception as error:  # a plugin's code may raise anything: one check reports it
            return error

    return subject.once("small run", attempt)


def learned(subject: Subject) -> SmallRun:
    """Return the subject's run, done once.

    Raises:
        NotApplicable: The run fails; the check ``learns_a_small_stream`` reports why.
    """
    run = whole(subject)
    if isinstance(run, Exception):
        raise NotApplicable(NO_RUN)
    return run


def resumed(subject: Subject) -> SmallRun:
    """Return the rest of the subject's run, resumed in a new session from its files of the second task."""
    midway = learned(subject).midway
    with tempfile.TemporaryDirectory() as folder:
        for name, content in midway.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return _advance(subject, Path(folder), resumed=True)


def run_again(subject: Subject) -> SmallRun:
    """Do the subject's run in a new session, from its beginning to its end."""
    with tempfile.TemporaryDirectory() as folder:
        return _advance(subject, Path(folder))


def _advance(subject: Subject, directory: Path, *, resumed: bool = False) -> SmallRun:
    """Run to the end, from the beginning or from the newest checkpoint."""
    session = opened(subject)
    files = RunDirectory(directory)
    store = CheckpointStore(files.checkpoints)
    run = Run(resolved(subject), session, files, store)
    if resumed:
        run.resume_from(*store.newest(), standing=False)
    wires = wiring(session.parts.backbone)
    notes = _Notes(session, files, store)
    run.go_on([notes])
    return SmallRun(
        session=session,
        after=notes.after,
        phases=notes.phases,
        checkpoints={task: store.of_task(task) for task in notes.after if task in store.finished},
        wires=wires,
        decisions=notes.decisions,
        midway=notes.midway,
    )


def evaluate(session: Session, task: int) -> tuple[Predictions, Tensor]:
    """Return predictions and features of the test samples of the first tasks, computed without caches."""
    session.data.evaluator.forget()
    predictions, _ = session.evaluate(task, Reporter([], [1] * (task + 1)))
    return predictions, session.data.evaluator.features_of(len(predictions.sample)).clone()


def require_run(subject: Subject, options: Mapping[str, Any], baseline: str) -> None:
    """Run a baseline that names the component, export the model, and compare what both predict.

    Args:
        subject: The component.
        options: Options of the run, by dotted key.
        baseline: Name of the baseline.

    Raises:
        ContractViolation: Run and export predict otherwise.
    """
    component = subject.component
    short = short_options(subject.catalogue.get("baseline", baseline).config)
    overrides = {**QUICK, "run.device": subject.device}
    overrides |= {f"baseline.{key}": value for key, value in short.items()}
    overrides |= {f"{component.kind}.{component.name}.{key}": value for key, value in subject.options.items()}
    overrides |= options
    resolved = resolve(
        subject.catalogue, overrides=overrides, baseline=baseline, benchmark="tiny", backbone="tiny"
    )
    images = torch.randint(0, 256, (12, 3, 16, 16), generator=torch.Generator().manual_seed(0)).byte()
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        export = Path(folder, "export")
        start(resolved, subject.catalogue, run)
        export_run(run, subject.catalogue, export, tell=lambda text: None)  # nobody asked for one
        for place in (run, export):
            model = open_model(place, subject.catalogue, device=subject.device)
            answers.append(model(list(images)))
    if not torch.equal(*answers):
        raise ContractViolation("a run and its export predict otherwise; register as buffers what it needs")
