"""The functions of lw2g: what its commands do, from Python.

Commands and functions run the same code; a function returns what its command prints. Importing this module
imports neither torch nor any plugin.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lw2g.api.models import export, load
from lw2g.api.reading import report, runs, verify
from lw2g.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lw2g.api.results import RunRecord, SweepResult
    from lw2g.interfaces.component import Kind
    from lw2g.interfaces.tracker import Tracker
    from lw2g.sweeps.store import Status

__all__ = ["continue_run", "export", "fork", "load", "report", "resume", "run", "runs", "sweep", "verify"]

_COMPONENTS: tuple[Kind, ...] = ("baseline", "retrieval", "policy", "benchmark", "backbone")


def run(
    config: str | Path | None = None,
    *,
    baseline: Any = None,
    policy: Any = None,
    constraints: Any = None,
    retrieval: Any = None,
    benchmark: Any = None,
    backbone: Any = None,
    weights: str | Path | None = None,
    trackers: Any = (),
    out: str | Path | None = None,
    tasks: int | None = None,
    progress: bool = True,
    **options: Any,
) -> RunRecord:
    """Run an experiment and return its record.

    ``{"name": "dual-prompt", "head": "lda"}`` in place of a name sets options, too: so for ``baseline``,
    ``policy``, ``retrieval``, ``benchmark`` and ``backbone``.

    In place of a name, ``baseline``, ``retrieval``, ``policy`` and ``constraints`` take a class with their
    interface, or a record such as :class:`~lw2g.interfaces.component.BaselineComponent`; ``policy`` also an
    object with ``decide``, or a function ``decide(evidence)``.

    Args:
        config: A TOML file.
        baseline: How a parameter set adapts the backbone.
        policy: When a set is added.
        constraints: A constraint or a list of them in place of the policy's own; ``"none"`` for none.
        retrieval: The retrieval strategy in place of the baseline's own.
        benchmark: A name, a folder, or images: ``[(train, test), ...]``, a pair per task, or one
            ``(train, test)``, which ``increment`` cuts into tasks; with ``test_share`` one split, of which
            that share tests. A split is a torch data set, a pair ``(images, labels)`` of arrays, a list of
            ``(path, label)``, or a Hugging Face data set. ``"owner/name"`` is a data set of the Hugging Face
            hub if there is no such folder.
        backbone: The frozen backbone: a name, the name of any timm model, or a timm model as an object,
            without a classifier and in evaluation mode.
        weights: A weights file for it, not beside an object.
        trackers: A tracker or a list of them: names, objects with ``on_event``, functions of an event.
        out: The run's directory; None for a new one under ``runs/``.
        tasks: Number of tasks after which to stop (:func:`continue_run` continues); None for all.
        progress: Whether to show the progress: a bar in notebooks and on terminals, else lines on stderr.
        **options: ``protocol``, ``seed``, ``device``, ``devices``, ``precision``; ``increment``,
            ``test_share``, ``order`` and ``order_seed`` of the benchmark; ``epochs`` of the baseline; and
            any other option by its dotted key, as in ``run(policy="min", **{"growth.energy": 0.99})``.

    Raises:
        ConfigError: The configuration is invalid; the message lists every problem.
        DataError: The images cannot be used.
        Interrupted: Ctrl-C stopped the run, which can be resumed.
    """
    from lw2g.api.arguments import as_options
    from lw2g.api.local import Locals, as_names, split_trackers
    from lw2g.config.directory import new_directory
    from lw2g.config.resolve import resolve

    if "seeds" in options:
        raise ConfigError(
            "seeds: a call runs one seed", "[lw2g.run(..., seed=seed) for seed in seeds], then lw2g.report"
        )
    local, (tracker_names, listeners) = Locals(), split_trackers(trackers)
    given = {
        "baseline": baseline,
        "retrieval": retrieval,
        "policy": policy,
        "benchmark": benchmark,
        "backbone": backbone,
    }
    given, overrides = as_options(given, options)
    names = {kind: local.name(kind, given[kind]) for kind in _COMPONENTS}
    constraint_names = as_names("constraint", constraints, local)
    catalogue = local.catalogue()
    resolved = resolve(
        catalogue,
        file=Path(config) if config else None,
        overrides=overrides,
        constraints=constraint_names,
        trackers=tracker_names,
        weights=weights,
        **names,
    )
    local.require_reach(resolved.config)
    from lw2g.lifecycle.runner import start

    with new_directory(resolved.config, Path(out) if out else None) as directory:
        receivers = [*listeners, *_listeners(progress)]
        return _record(start(resolved, catalogue, directory, receivers, tasks=tasks), directory)


def resume(
    run: str | Path,
    *,
    devices: int | None = None,
    trackers: Any = (),
    local: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> RunRecord:
    """Resume an interrupted run from its newest intact checkpoint and return its record.

    Args:
        run: The run's directory.
        devices: Number of processes from now on; None for the configured number.
        trackers: Objects with ``on_event``, or functions of an event, beside the run's own trackers.
        local: The objects that the run began with in place of names, by kind, as in
            ``{"baseline": MyBaseline, "benchmark": [(train, test), ...]}``.
        progress: As for :func:`run`.

    Raises:
        DataError: There is no run, or its configuration, data or weights have changed.
        UnknownComponentError: An object that the run began with is missing in ``local``.
        Interrupted: Ctrl-C stopped the run, which can be resumed again.
    """
    from lw2g.api.local import catalogue_of
    from lw2g.lifecycle import runner

    catalogue = catalogue_of(local, run, devices)
    receivers = [*_callbacks(trackers), *_listeners(progress)]
    return _record(runner.resume(Path(run), catalogue, receivers, devices=devices), run)


def continue_run(
    run: str | Path,
    *,
    tasks: int | None = None,
    devices: int | None = None,
    trackers: Any = (),
    local: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> RunRecord:
    """Continue a run that stopped after ``tasks``, as if it had not stopped, and return its record.

    Args:
        run: The run's directory.
        tasks: Number of tasks, counted from the first, after which to stop; None for all.
        devices: Number of processes from now on; None for the configured number.
        trackers: As for :func:`resume`.
        local: As for :func:`resume`.
        progress: As for :func:`run`.

    Raises:
        DataError: There is no run, or its configuration, data or weights have changed.
        ConfigError: It has finished that many tasks, or its stream has fewer.
        Interrupted: Ctrl-C stopped the run, which can be resumed.
    """
    from lw2g.api.local import catalogue_of
    from lw2g.lifecycle.continuing import proceed

    catalogue = catalogue_of(local, run, devices)
    receivers = [*_callbacks(trackers), *_listeners(progress)]
    return _record(proceed(Path(run), catalogue, receivers, tasks=tasks, devices=devices), run)


def fork(
    run: str | Path,
    at_task: int,
    *,
    out: str | Path | None = None,
    policy: Any = None,
    constraints: Any = None,
    tasks: int | None = None,
    trackers: Any = (),
    local: Mapping[str, Any] | None = None,
    progress: bool = True,
    **overrides: Any,
) -> RunRecord:
    """Start a run from the end of a task of another run, with other choices, and return its record.

    The other run stays unchanged. If no choice changes, the new run repeats it.

    Args:
        run: The other run's directory.
        at_task: Number of tasks to take over.
        out: The new run's directory; None for a new one under ``runs/``.
        policy: Growth policy from there on, as for :func:`run`.
        constraints: A constraint or a list of them from there on; None for those of the other run.
        tasks: As for :func:`continue_run`.
        trackers: As for :func:`resume`.
        local: As for :func:`resume`.
        progress: As for :func:`run`.
        **overrides: Single options by their dotted keys, as in ``**{"policy.map": [0, 0, 1]}``.

    Raises:
        DataError: There is no such run or task, or its files, data or weights have changed.
        ConfigError: The finished tasks depend on a changed option.
        Interrupted: Ctrl-C stopped the new run, which can be resumed.
    """
    from lw2g.api.local import Locals, as_names
    from lw2g.config.directory import new_directory
    from lw2g.lifecycle import forking

    known = Locals.of(local)
    policy, names = known.name("policy", policy), as_names("constraint", constraints, known)
    catalogue = known.catalogue()
    resolved = forking.resolve_fork(
        Path(run), catalogue, policy=policy, constraints=names, overrides=overrides
    )
    known.require_reach(resolved.config)
    with new_directory(resolved.config, Path(out) if out else None) as directory:
        receivers = [*_callbacks(trackers), *_listeners(progress)]
        record = forking.fork(Path(run), at_task - 1, resolved, catalogue, directory, receivers, tasks=tasks)
        return _record(record, directory)


def sweep(
    grid: str | Path,
    *,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    executor: str | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    gpus_per_job: float | None = None,
    executor_options: Mapping[str, Any] | None = None,
    rehearse: str | None = None,
    watch: Callable[[Sequence[Status]], None] = lambda statuses: None,
) -> SweepResult:
    """Run the cells of a grid, each as a process of its own; a stopped sweep goes on where it stopped.

    Args:
        grid: A TOML file.
        out: The sweep's directory; None for ``runs/GRID``.
        settings: Settings of every cell by their dotted keys, which override the grid's.
        executor: ``local``, ``ray`` or ``slurm``; None for the grid's own.
        jobs: Runs at a time.
        threads: Cores of a run.
        gpus_per_job: GPUs of a run; with 0.5 two runs share one.
        executor_options: Further options of the executor.
        rehearse: A benchmark (``glyphs`` is embedded) or a folder of images on which to rehearse the grid:
            each kind of cell once, with the embedded backbone and few epochs; ``out`` is then by default
            ``runs/GRID-rehearsed``.
        watch: Receives the status of all cells a few times a second.

    Raises:
        ConfigError: The grid, a cell or the executor cannot be used.
    """
    from lw2g.api.results import SweepResult
    from lw2g.config.directory import RUNS
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.sweeps.engine import require_valid, run_sweep
    from lw2g.sweeps.executors import load_executor, merged_settings
    from lw2g.sweeps.grid import read_executor, read_grid
    from lw2g.sweeps.needs import without_missing_files
    from lw2g.sweeps.rehearse import rehearsed_cells
    from lw2g.sweeps.store import SweepDirectory

    grid, catalogue = Path(grid), load_catalogue()
    cells = read_grid(grid, settings or {})
    name = grid.stem
    if rehearse is not None:
        require_valid([without_missing_files(cell) for cell in cells], catalogue)
        cells = rehearsed_cells(grid, catalogue, settings or {}, rehearse)
        name = f"{grid.stem}-rehearsed"
    require_valid(cells, catalogue)
    store = SweepDirectory(Path(out) if out else RUNS / name)
    given = {"executor": executor, "jobs": jobs, "threads": threads, "gpus_per_job": gpus_per_job}
    chosen = merged_settings(read_executor(grid), given, executor_options or {})
    statuses = run_sweep(store, cells, load_executor(chosen, store.path), watch)
    return SweepResult(store.path, statuses)


def _callbacks(trackers: Any) -> Sequence[Tracker]:
    """Return listeners; trackers with names belong to a run's configuration."""
    from lw2g.api.local import split_trackers

    names, listeners = split_trackers(trackers)
    if names:
        raise ConfigError(
            f"trackers: {names[0]!r} is a name, and a run keeps the trackers that it began with",
            "give an object with on_event",
        )
    return listeners


def _listeners(progress: bool) -> list[Tracker]:
    if not progress:
        return []
    from lw2g.console.output import console
    from lw2g.console.progress import progress_tracker

    return [progress_tracker(console(stderr=True))]


def _record(record: Mapping[str, Any], run: str | Path) -> RunRecord:
    from lw2g.api.results import RunRecord

    return RunRecord(record, Path(run))
