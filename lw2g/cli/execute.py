"""Running one or several experiments from a command: notes before, progress meanwhile, metrics after."""

from __future__ import annotations

import atexit
import gc
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.cli.output import console, note, print_metrics, print_summary
from lw2g.config.directory import EXPERIMENT, GOAL, SEEDS, SUMMARY
from lw2g.errors import ConfigError, DataError
from lw2g.training.files.contents import Goal, Seeds, read_sealed
from lw2g.training.files.sealed import seal_json, sha256_of, write_atomically

if TYPE_CHECKING:
    from lw2g.config.model import Chosen, Resolved
    from lw2g.registry.catalogue import Catalogue

__all__ = [
    "announce",
    "continue_one",
    "continue_seeds",
    "fork_one",
    "resume_one",
    "resume_seeds",
    "run_one",
    "run_seeds",
    "summarise",
]

Record = dict[str, Any]
INTERRUPTED = 130


def announce(resolved: Resolved, catalogue: Catalogue) -> None:
    """Say what a user should know before a run starts."""
    config = resolved.config
    note(f"protocol {config.run.protocol}, preset {resolved.preset}")
    for text in resolved.notes:
        note(text)
    embedded = [
        component.name
        for component in (
            catalogue.get("benchmark", config.benchmark.name),
            catalogue.get("backbone", config.backbone.name),
        )
        if component.embedded
    ]
    if embedded:
        note(f"{' and '.join(embedded)}: embedded defaults to learn and test with, never results to publish")
    warn_of_problems(catalogue)


def warn_of_problems(catalogue: Catalogue) -> None:
    """Say that some plugins cannot be used."""
    if catalogue.problems:
        note(f"problems with plugins: {len(catalogue.problems)}; run `lw2g plugins` to see them")


def run_one(resolved: Resolved, catalogue: Catalogue, directory: Path, tasks: int | None = None) -> None:
    """Run one experiment, up to a number of tasks where one is named, and print its metrics."""
    with _collector_waits():
        from lw2g.training.runner import start

    listeners = _listeners()
    record = _uninterrupted(lambda: start(resolved, catalogue, directory, listeners, tasks=tasks), directory)
    _conclude(record, directory)


def resume_one(directory: Path, catalogue: Catalogue, devices: int | None = None) -> None:
    """Go on with one experiment and print its metrics."""
    with _collector_waits():
        from lw2g.training.runner import resume

    listeners = _listeners()
    record = _uninterrupted(lambda: resume(directory, catalogue, listeners, devices=devices), directory)
    _conclude(record, directory)


def continue_one(
    directory: Path,
    catalogue: Catalogue,
    tasks: int | None,
    benchmark: Chosen | None = None,
    devices: int | None = None,
) -> None:
    """Go on with an experiment that was meant to stop, or with another benchmark; print its metrics."""
    with _collector_waits():
        from lw2g.training.continuing import extend, proceed

    listeners = _listeners()

    def go() -> Record:
        if benchmark is None:
            return proceed(directory, catalogue, listeners, tasks=tasks, devices=devices)
        return extend(directory, benchmark, catalogue, listeners, tasks=tasks, devices=devices)

    record = _uninterrupted(go, directory)
    _conclude(record, directory)


def fork_one(
    parent: Path, task: int, resolved: Resolved, catalogue: Catalogue, directory: Path, tasks: int | None
) -> None:
    """Start a run from a task (from 0) of another one and print its metrics."""
    with _collector_waits():
        from lw2g.training.forking import fork

    listeners = _listeners()
    record = _uninterrupted(
        lambda: fork(parent, task, resolved, catalogue, directory, listeners, tasks=tasks), directory
    )
    _conclude(record, directory)


def run_seeds(
    resolved: Resolved, catalogue: Catalogue, directory: Path, seeds: Sequence[int], tasks: int | None = None
) -> None:
    """Run an experiment once per seed, in one directory per seed, and print mean and deviation."""
    from lw2g.config.toml import dump_resolved

    write_atomically(directory / EXPERIMENT, dump_resolved(resolved).encode())
    told = {"seeds": list(seeds), "experiment": sha256_of(directory / EXPERIMENT), "tasks": tasks}
    write_atomically(directory / SEEDS, seal_json(told))
    _go_on_with_seeds(resolved, catalogue, directory, seeds, tasks)


def resume_seeds(directory: Path, catalogue: Catalogue, devices: int | None = None) -> None:
    """Go on with the runs that :func:`run_seeds` has not finished."""
    told, resolved = _told_of_seeds(directory, catalogue)
    _go_on_with_seeds(resolved, catalogue, directory, told["seeds"], told.get("tasks"), devices)


def continue_seeds(
    directory: Path, catalogue: Catalogue, tasks: int | None, devices: int | None = None
) -> None:
    """Go on with the runs of several seeds that were meant to stop."""
    told, resolved = _told_of_seeds(directory, catalogue)
    before = told.get("tasks")
    if tasks is not None and (before is None or tasks < before):
        meant = "are to learn the whole stream" if before is None else f"are to stop after task {before}"
        raise ConfigError(f"cannot stop after task {tasks}: the runs {meant}; name no fewer")
    write_atomically(directory / SEEDS, seal_json(told | {"tasks": tasks}))
    try:
        _go_on_with_seeds(resolved, catalogue, directory, told["seeds"], tasks, devices)
    except ConfigError:  # nothing was run
        write_atomically(directory / SEEDS, seal_json(told))
        raise


def _told_of_seeds(directory: Path, catalogue: Catalogue) -> tuple[Record, Resolved]:
    """Return what ``seeds.json`` says, and the experiment."""
    from lw2g.config.resolve import load_resolved

    told = read_sealed(directory / SEEDS, Seeds)
    experiment = directory / EXPERIMENT
    if sha256_of(experiment) != told["experiment"]:
        raise DataError(f"{str(experiment)!r} is not the one the runs began with; put it back")
    return told, load_resolved(experiment, catalogue)


def _go_on_with_seeds(
    resolved: Resolved,
    catalogue: Catalogue,
    directory: Path,
    seeds: Sequence[int],
    tasks: int | None,
    devices: int | None = None,
) -> None:
    with _collector_waits():
        from lw2g.training.continuing import proceed
        from lw2g.training.runner import start

    records: list[Record] = []
    for seed in seeds:
        place, listeners = directory / f"seed-{seed}", _listeners()
        # what auto settled for the first seed holds for all: they differ in nothing but the seed
        precision = records[0]["config"]["run"]["precision"] if records else resolved.config.run.precision
        run = attrs.evolve(resolved.config.run, seed=seed, precision=precision)
        run = attrs.evolve(run, devices=devices or run.devices)
        seeded = attrs.evolve(resolved, config=attrs.evolve(resolved.config, run=run))
        click.echo(f"seed {seed}: {place}", err=True)

        def go(place: Path = place, seeded: Resolved = seeded, listeners: Any = listeners) -> Record:
            if (place / "config.toml").exists():
                return proceed(place, catalogue, listeners, tasks=tasks, devices=devices)
            return start(seeded, catalogue, place, listeners, tasks=tasks)

        records.append(_uninterrupted(go, directory))
    summary = {
        "seeds": list(seeds),
        "protocol": resolved.config.run.protocol,
        "metrics": summarise([record["metrics"] for record in records]),
    }
    write_atomically(directory / SUMMARY, seal_json(summary))
    print_summary(summary)
    click.echo(f"runs: {directory}")


def summarise(metrics: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, Any]]:
    """Return mean, sample standard deviation and values of each metric over several runs.

    Mean and deviation are None where a run has no value; the deviation is None for a single run.
    """
    found = {}
    for name in metrics[0]:
        values = [each[name] for each in metrics]
        known = [value for value in values if value is not None]
        whole = len(known) == len(values)
        found[name] = {
            "mean": statistics.fmean(known) if whole else None,
            "std": statistics.stdev(known) if whole and len(known) > 1 else None,
            "values": values,
        }
    return found


@contextmanager
def _collector_waits() -> Iterator[None]:
    """Keep the garbage collector from running during imports, and from looking at what they made ever after.

    Those of torch and timm make so many objects, which stay for good, that the collector takes a fifth of
    their time, and half a second more before the first step.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        # at the end as if nothing had been: extensions look for what they have left behind, and complain
        atexit.register(gc.unfreeze)
        gc.enable()


def _listeners() -> list[Any]:
    from lw2g.cli.progress import progress_tracker

    return [progress_tracker(console(stderr=True))]


def _uninterrupted(action: Callable[[], Record], resume_at: Path) -> Record:
    """Run to the end, or say how to go on and leave with the exit code of an interrupted program."""
    from lw2g.training.progress import Interrupted

    try:
        return action()
    except (Interrupted, KeyboardInterrupt) as stop:
        begun = isinstance(stop, Interrupted) or (resume_at / SEEDS).exists()
        go_on = f"; resume with: lw2g resume {resume_at}" if begun else " before anything was learned"
        click.echo(f"interrupted{go_on}", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def _conclude(record: Record, directory: Path) -> None:
    print_metrics(record)
    if (directory / GOAL).exists():
        goal = read_sealed(directory / GOAL, Goal)["tasks"]
        click.echo(f"stopped after task {goal}; go on with: lw2g continue {directory}")
    click.echo(f"run: {directory} (details: lw2g show {directory})")
