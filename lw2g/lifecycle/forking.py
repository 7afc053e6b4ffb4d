"""Forks: a new run takes over a run's first tasks and continues with other choices.

A fork may change every option that leaves the taken-over model as it was: data and weights must be the same,
the state must fit, and the model must predict what it predicted. Options that old tasks depend on without
showing it in these checks are refused by name.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.config.directory import CONFIG, require_run
from lw2g.config.resolve import Resolved, resolve
from lw2g.config.toml import dump_resolved, flat, to_mapping
from lw2g.disk.checkpoint import Checkpoint, CheckpointStore
from lw2g.disk.predictions import Predictions
from lw2g.disk.record import RunDirectory
from lw2g.disk.sealed import sha256_of
from lw2g.disk.stored_run import StoredRun, open_after
from lw2g.errors import ConfigError, DataError
from lw2g.ground.notes import tell_note
from lw2g.interfaces.tracker import Tracker
from lw2g.learning.evidence.collecting import unmeasured
from lw2g.learning.session import Session, open_session
from lw2g.learning.session_parts import RunParts
from lw2g.learning.state import restore
from lw2g.lifecycle.estimate import Estimate, estimate
from lw2g.lifecycle.ledger import Ledger
from lw2g.lifecycle.recording import build_record
from lw2g.lifecycle.run_opening import build_trackers, new_run
from lw2g.lifecycle.runner import opened_for_resume
from lw2g.model.manifest import described
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.boundary import guarded
from lw2g.runtime.ranks import on_its_device
from lw2g.runtime.returned import require_decision

__all__ = ["estimate_fork", "fork", "resolve_fork"]

_KEPT = (
    "backbone.",
    "baseline.name",
    "benchmark.name",
    "retrieval.name",
    "routing.",
    "growth.heads",
    "growth.tap",
    "run.protocol",
)
"""Old tasks depend on them: parameters, keys, spaces, and the meaning of their numbers."""
_ARITHMETIC = {"run.device", "run.precision", "run.evaluation_batch"}
"""A change of these changes the last bits of features, and now and then a prediction."""


def resolve_fork(
    parent: Path,
    catalogue: Catalogue,
    *,
    policy: str | None = None,
    constraints: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Resolved:
    """Return a run's experiment with other choices; all else stays, constraints included.

    Raises:
        DataError: There is no run.
        ConfigError: Something cannot be used.
    """
    require_run(parent)
    file = RunDirectory(parent).config
    resolved = resolve(catalogue, file=file, overrides=overrides, policy=policy, constraints=constraints)
    # what the run's own file holds of components that are replaced, nobody has set here: no note on it
    itself = resolve(catalogue, file=tomllib.loads(dump_resolved(resolved)), overrides=overrides)
    return attrs.evolve(resolved, notes=itself.notes)


def fork(
    parent: Path,
    task: int,
    resolved: Resolved,
    catalogue: Catalogue,
    directory: Path,
    listeners: Sequence[Tracker] = (),
    *,
    tasks: int | None = None,
) -> dict[str, Any]:
    """Start a run from the end of a task of another run, with other choices, and return its record.

    Without a change it continues as the other run did, bit for bit on a CPU. The other run is only read.

    Args:
        parent: Directory of the other run.
        task: The last task (from 0) that is taken over.
        resolved: The configuration from there on.
        catalogue: Where components come from.
        directory: The new run's directory; must not hold a run.
        listeners: Receive the new run's events.
        tasks: After how many tasks, counted from the first, to stop; None for those of the whole stream.

    Raises:
        ConfigError: The directory holds a run, or what was learned rests on a choice that is changed.
        DataError: There is no such run or task, or its files, data or weights are damaged or have changed.
        Interrupted: The new run was stopped on request and can be resumed.
    """
    run, changed = _opened(parent, task, resolved, catalogue)
    old = run.files
    moved = run.moved(catalogue)
    with new_run(directory) as (files, _), guarded(catalogue, resolved.config):
        session = _restored(run, task, resolved, catalogue, changed, tasks)
        resolved = attrs.evolve(resolved, config=session.parts.config)
        ledger = Ledger.restored(run.require_checkpoint().ledger)
        if any(change["option"] == "run.precision" for change in changed):
            ledger.precision = attrs.asdict(session.precision)
        same = _require_same(session.predictions(task), old.read_predictions(task), changed)
        ledger.origin = {
            "run": str(parent.absolute()),
            "task": task,
            "checkpoint": sha256_of(old.checkpoints / f"task-{task:03d}.safetensors"),
            "changed": changed,
            "same_predictions": same,
            "origin": ledger.origin,
        }
        content = dump_resolved(resolved)
        ledger.files[CONFIG] = hashlib.sha256(content.encode()).hexdigest()
        _copy_tests(old, files, session, ledger)
        _copy_checkpoints(run.store.up_to(task), CheckpointStore(files.checkpoints), session.parts, ledger)
        files.write_record(build_record(resolved, session, ledger))
        files.write_goal(tasks)
        files.write_origins(session.components.origins)
        files.write_config(content)  # with it the directory is a run that has the tasks
        if moved is not None:  # not before: it would tell of another run that is begun here
            files.write_moved(moved)
    # the session that has just predicted continues; nothing is computed twice
    with opened_for_resume(directory, catalogue, session) as continued:
        continued.aim(tasks)
        return continued.go_on([*build_trackers(continued.resolved, catalogue, directory), *listeners])


def estimate_fork(
    parent: Path, task: int, resolved: Resolved, catalogue: Catalogue, *, tasks: int | None = None
) -> Estimate:
    """Return the cost of a fork from the task on; nothing is written.

    All is refused that :func:`fork` refuses before it predicts. Arguments and errors are those of it.
    """
    run, changed = _opened(parent, task, resolved, catalogue)
    with guarded(catalogue, resolved.config):
        session = _restored(run, task, resolved, catalogue, changed, tasks)
    return estimate(
        session.parts.config,
        catalogue,
        tasks=tasks,
        done=task + 1,
        later=run.later_benchmarks(catalogue),
        moved=run.moved(catalogue),
    )


def _opened(
    parent: Path, task: int, resolved: Resolved, catalogue: Catalogue
) -> tuple[StoredRun, list[dict[str, Any]]]:
    """Return the other run after the task, and what is changed; refuse what can be refused without a session.

    Raises:
        ConfigError: What was learned rests on a choice that is changed.
        DataError: There is no such run or task, or its files are damaged.
    """
    run = open_after(parent, task)
    run.require_checkpoint()
    changed = _changes(run.resolved(catalogue), resolved)
    _require_free_to_change(changed)
    on_its_device(resolved.config, resolved.config.run.devices)  # otherwise the written fork would be refused
    return run, changed


def _restored(
    run: StoredRun,
    task: int,
    resolved: Resolved,
    catalogue: Catalogue,
    changed: Sequence[Mapping[str, Any]],
    tasks: int | None,
) -> Session:
    """Return a session of the fork in the state of the checkpoint; refuse what does not fit it.

    Args:
        run: The other run, after the task.
        task: The last task (from 0) that is taken over.
        resolved: The configuration from there on.
        catalogue: Where components come from.
        changed: The changed options.
        tasks: After how many tasks the fork stops.

    Raises:
        ConfigError: Nothing is left to learn, or a choice does not fit what was learned.
        DataError: Data or weights have changed.
    """
    taken_over = run.require_checkpoint()
    later = run.later_benchmarks(catalogue)
    session = open_session(resolved.config, catalogue, later, moved=run.moved(catalogue))
    parts = session.parts
    if not changed and task + 1 == len(parts.infos):
        raise ConfigError(
            f"after task {task + 1}, the last, nothing is left to learn, and no option is changed",
            f"fork after an earlier task, or copy {str(run.files.path)!r}",
        )
    _tell_ended_training(parts, task + 1, changed)
    with _data_kept(changed), _shapes_kept(changed):
        restore(session, taken_over)
    new_constraints = _constraints(resolved) - _constraints(run.resolved(catalogue))
    _require_spaces(parts, Ledger.restored(taken_over.ledger), new_constraints)
    parts.require_goal(task + 1, tasks)
    if not session.components.policy.reads(resolved.config.policy.config):
        _require_decidable(parts, task + 1)
    return session


def _tell_ended_training(parts: RunParts, done: int, changed: Sequence[Mapping[str, Any]]) -> None:
    """Note that changed options of training can change nothing where no further task trains.

    Args:
        parts: Of the fork.
        done: How many tasks are taken over.
        changed: The changed options.
    """
    trained = parts.baseline.trained_tasks
    options = _named(changed, "baseline.")
    if trained is None or trained > done or not options or "baseline.trained_tasks" in options:
        return
    name = parts.config.baseline.name
    first = "the first task" if trained == 1 else f"the first {trained} tasks"
    tell_note(f"{name} trains on {first} alone: of {options}, what is for training changes nothing any more")


def _copy_tests(old: RunDirectory, files: RunDirectory, session: Session, ledger: Ledger) -> None:
    """Write what another run has predicted, and the lists of images that its rows stand for."""
    for task, checksum in enumerate(ledger.predictions):
        if checksum is not None:
            files.write_predictions(task, old.read_predictions(task))
    for source, ids in enumerate(session.data.sample_lists):
        files.write_samples(ids, source)
        if source:
            files.write_source(session.data.sources[source].benchmark, source)


def _copy_checkpoints(
    checkpoints: Iterable[Checkpoint], store: CheckpointStore, parts: RunParts, ledger: Ledger
) -> None:
    """Write another run's checkpoints under the configuration of this one.

    Args:
        checkpoints: Of all tasks that are taken over, because each holds only what its task has changed.
        store: Where they go.
        parts: What is built of the new configuration.
        ledger: Of the new run.
    """
    for checkpoint in checkpoints:
        entries = dict(checkpoint.ledger) | {
            "files": checkpoint.ledger["files"] | {CONFIG: ledger.files[CONFIG]},
            "origin": ledger.origin,
            "precision": ledger.precision,
        }
        progress = dict(checkpoint.progress)
        # what an export takes from a checkpoint
        progress["model"] |= {"preprocessing": described(parts)["preprocessing"]}
        store.save(attrs.evolve(checkpoint, ledger=entries, progress=progress))


def _changes(before: Resolved, after: Resolved) -> list[dict[str, Any]]:
    """Return one mapping ``{option, before, after}`` per difference of two configurations."""
    old = _flat_options(before)
    new = _flat_options(after)
    changes = []
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            changes.append({"option": key, "before": old.get(key), "after": new.get(key)})
    return changes


def _flat_options(resolved: Resolved) -> dict[str, Any]:
    """Return the options by dotted keys; constraints, whose order says nothing, by their sorted names."""
    return {**flat(to_mapping(resolved.config)), "constraints": sorted(_constraints(resolved))}


def _constraints(resolved: Resolved) -> set[str]:
    return {constraint.name for constraint in resolved.config.constraints}


def _named(changed: Sequence[Mapping[str, Any]], *sections: str) -> str:
    """Return the changed options of some sections for a message; all of them where none is given."""
    options = [change["option"] for change in changed]
    if sections:
        options = [option for option in options if option.startswith(sections)]
    return ", ".join(options)


def _require_free_to_change(changed: Sequence[Mapping[str, Any]]) -> None:
    kept = _named(changed, *_KEPT)
    if kept:
        raise ConfigError(
            f"a fork cannot change {kept}: what was learned until then rests on it",
            "leave it as it is, or start a new run",
        )


@contextmanager
def _data_kept(changed: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Name the changed options of the benchmark where they are why it is another one.

    Raises:
        ConfigError: They are.
    """
    try:
        yield
    except DataError as error:
        options = _named(changed, "benchmark.")
        if not options or not error.what.startswith("the benchmark"):
            raise
        raise ConfigError(
            f"a fork cannot change {options}: with it {error.what}", "leave it as it is, or start a new run"
        ) from error


@contextmanager
def _shapes_kept(changed: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Name the changed options where the state of a checkpoint does not fit.

    Raises:
        ConfigError: Options have changed the shapes of what was learned.
    """
    try:
        yield
    # torch refuses other shapes and names with the first; states that are read one by one lack a name, or
    # refuse a value
    except (RuntimeError, KeyError, ValueError) as error:
        shaping = _named(changed, "baseline.", "retrieval.", "constraints", "growth.")
        if not shaping:
            raise
        raise ConfigError(
            f"what was learned does not fit other values of {shaping}: they shape parameters",
            "leave them as they are, or start a new run",
        ) from error


def _require_spaces(parts: RunParts, ledger: Ledger, new: Set[str]) -> None:
    """Refuse choices that read spaces of old tasks where the run kept none.

    Args:
        parts: In the state of the checkpoint.
        ledger: Of the run so far.
        new: The constraints that the fork adds.

    Raises:
        ConfigError: There is such a choice.
    """
    sites = [*parts.baseline.shared_sites(), *map(parts.baseline.sites, parts.pool.sets)]
    if parts.keeps_memory and any(sites):
        without = [entry["task"] + 1 for entry in ledger.decisions if not entry["ranks_after"]]
        if without:
            raise ConfigError(
                f"policy and constraints need the spaces of tasks {without}, and the run kept none (it ran "
                "without evidence and constraints then)",
                "fork a run that has them, or choose others",
            )
    for name, measure in parts.growth.measures.items():
        if not measure.stores:
            continue
        without = sorted(set(parts.pool.ids) - parts.growth.stored.of(name).keys())
        if without:
            raise ConfigError(
                f"evidence {name!r} needs what it stores of a task that is learned, and the run has stored "
                f"nothing of sets {without}",
                "fork a run that had it in growth.measures, or leave it out",
            )
    for name in sorted(new & parts.constraints.keys()):
        if parts.constraints[name].absorbs:
            raise ConfigError(
                f"constraint {name!r} keeps spaces of its own, and has seen none of the tasks learned so far",
                "fork a run that had it",
            )


def _require_decidable(parts: RunParts, task: int) -> None:
    """Let a policy that needs no evidence decide now, so that it fails now if it cannot.

    Raises:
        ConfigError: It cannot.
    """
    if task < len(parts.infos) and not parts.growth.fixed:
        decision = parts.growth.policy.decide(unmeasured(parts, task), parts.generator(task))
        require_decision(parts.config.policy.name, decision, parts.pool)


def _require_same(now: Predictions, before: Predictions, changed: Sequence[Mapping[str, Any]]) -> float:
    """Return the share of test samples that get the same class and set as before.

    Raises:
        ConfigError: It is below 1, and no option of the arithmetic has changed.
    """
    same = float(np.mean((now.predicted == before.predicted) & (now.set == before.set)))
    if same < 1 and not _ARITHMETIC & {change["option"] for change in changed}:
        options = _named(changed, "baseline.", "retrieval.", "benchmark.")
        if not options:
            raise DataError(
                "the restored model predicts otherwise than it did",
                "look at the run with lw2g verify, and at the library versions in its record",
            )
        raise ConfigError(
            f"with other values of {options} the model predicts otherwise than it did ({same:.1%} alike): "
            "what was learned rests on them",
            "leave them as they are, or start a new run",
        )
    return same
