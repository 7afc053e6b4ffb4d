"""Runs one or several experiments for a command: notes before, progress during, metrics after the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.base.collector import collector_waits
from lw2g.cli.signals import telling_of_exits
from lw2g.config.directory import CONFIG, EXPERIMENT, SEEDS, SETTLED, SUMMARY
from lw2g.config.model import DEFAULT_BACKBONE, DEFAULT_BENCHMARK, RECOMMENDED
from lw2g.console.output import console, in_words, note
from lw2g.errors import ConfigError, DataError
from lw2g.files.contents import Seeds, read_sealed
from lw2g.files.sealed import seal_json, sha256_of, write_atomically
from lw2g.reports.statistics import MeanStd, summary

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
Listeners = list[Any]
INTERRUPTED = 130


def announce(resolved: Resolved, catalogue: Catalogue) -> None:
    """Print what a user should know before a run starts."""
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
    """Print a note if some plugins cannot be used."""
    if catalogue.problems:
        note(f"problems with plugins: {len(catalogue.problems)}; run `lw2g plugins` to see them")


def run_one(
    resolved: Resolved,
    catalogue: Catalogue,
    directory: Path,
    tasks: int | None = None,
    settled: Path | None = None,
) -> None:
    """Run one experiment and print its metrics.

    Args:
        resolved: The experiment.
        catalogue: Where its components come from.
        directory: The run's directory.
        tasks: After how many tasks to stop; None for those of the whole stream.
        settled: As for :func:`lw2g.lifecycle.runner.start`.
    """
    with collector_waits():
        from lw2g.lifecycle.runner import start

    def go(listeners: Listeners) -> Record:
        return start(resolved, catalogue, directory, listeners, tasks=tasks, settled=settled)

    _run_to_end(directory, catalogue, go)


def resume_one(directory: Path, catalogue: Catalogue, devices: int | None = None) -> None:
    """Resume one experiment and print its metrics."""
    with collector_waits():
        from lw2g.lifecycle.runner import resume

    _run_to_end(
        directory, catalogue, lambda listeners: resume(directory, catalogue, listeners, devices=devices)
    )


def continue_one(
    directory: Path,
    catalogue: Catalogue,
    tasks: int | None,
    benchmark: Chosen | None = None,
    devices: int | None = None,
) -> None:
    """Continue an experiment that stopped on purpose, or with another benchmark; print its metrics."""
    with collector_waits():
        from lw2g.lifecycle.continuing import extend, proceed

    def go(listeners: Listeners) -> Record:
        if benchmark is None:
            return proceed(directory, catalogue, listeners, tasks=tasks, devices=devices)
        return extend(directory, benchmark, catalogue, listeners, tasks=tasks, devices=devices)

    _run_to_end(directory, catalogue, go)


def fork_one(
    parent: Path, task: int, resolved: Resolved, catalogue: Catalogue, directory: Path, tasks: int | None
) -> None:
    """Fork a run from the end of a task (from 0) of another one and print its metrics."""
    with collector_waits():
        from lw2g.lifecycle.forking import fork

    _run_to_end(
        directory,
        catalogue,
        lambda listeners: fork(parent, task, resolved, catalogue, directory, listeners, tasks=tasks),
    )


def run_seeds(
    resolved: Resolved, catalogue: Catalogue, directory: Path, seeds: Sequence[int], tasks: int | None = None
) -> None:
    """Run an experiment once per seed, each in its own directory, and print mean and deviation."""
    from lw2g.config.toml import dump_resolved

    write_atomically(directory / EXPERIMENT, dump_resolved(resolved).encode())
    plan = {"seeds": list(seeds), "experiment": sha256_of(directory / EXPERIMENT), "tasks": tasks}
    write_atomically(directory / SEEDS, seal_json(plan))
    _go_on_with_seeds(resolved, catalogue, directory, seeds, tasks)


def resume_seeds(directory: Path, catalogue: Catalogue, devices: int | None = None) -> None:
    """Resume the runs that :func:`run_seeds` has not finished."""
    plan, resolved = _read_plan(directory, catalogue)
    _go_on_with_seeds(resolved, catalogue, directory, plan["seeds"], plan.get("tasks"), devices)


def continue_seeds(
    directory: Path, catalogue: Catalogue, tasks: int | None, devices: int | None = None
) -> None:
    """Continue the runs of several seeds that stopped on purpose."""
    plan, resolved = _read_plan(directory, catalogue)
    before = plan.get("tasks")
    if tasks is not None and (before is None or tasks < before):
        goal = "are to learn the whole stream" if before is None else f"are to stop after task {before}"
        raise ConfigError(f"cannot stop after task {tasks}: the runs {goal}", "name no smaller number")
    write_atomically(directory / SEEDS, seal_json(plan | {"tasks": tasks}))
    try:
        _go_on_with_seeds(resolved, catalogue, directory, plan["seeds"], tasks, devices)
    except ConfigError:  # nothing was run
        write_atomically(directory / SEEDS, seal_json(plan))
        raise


def _read_plan(directory: Path, catalogue: Catalogue) -> tuple[Record, Resolved]:
    """Return the content of ``seeds.json`` and the experiment."""
    from lw2g.config.resolve import load_resolved

    plan = read_sealed(directory / SEEDS, Seeds)
    experiment = directory / EXPERIMENT
    if sha256_of(experiment) != plan["experiment"]:
        raise DataError(f"{str(experiment)!r} is not the one the runs began with", "put it back")
    return plan, load_resolved(experiment, catalogue)


def _go_on_with_seeds(
    resolved: Resolved,
    catalogue: Catalogue,
    directory: Path,
    seeds: Sequence[int],
    tasks: int | None,
    devices: int | None = None,
) -> None:
    with collector_waits():
        from lw2g.lifecycle.continuing import proceed
        from lw2g.lifecycle.runner import start

    records: list[Record] = []
    for seed in seeds:
        place = directory / f"seed-{seed}"
        run = attrs.evolve(resolved.config.run, seed=seed)
        run = attrs.evolve(run, devices=devices or run.devices)
        seeded = attrs.evolve(resolved, config=attrs.evolve(resolved.config, run=run))
        click.echo(f"seed {seed}: {place}", err=True)

        def go(listeners: Listeners, place: Path = place, seeded: Resolved = seeded) -> Record:
            if (place / CONFIG).exists():
                return proceed(place, catalogue, listeners, tasks=tasks, devices=devices)
            # what auto settled on for the first seed holds for all: only the seed differs
            settled = directory / SETTLED
            return start(seeded, catalogue, place, listeners, tasks=tasks, settled=settled)

        records.append(_uninterrupted(go, directory))
    content = {
        "seeds": list(seeds),
        "protocol": resolved.config.run.protocol,
        "metrics": summarise([record["metrics"] for record in records]),
    }
    write_atomically(directory / SUMMARY, seal_json(content))
    _tell(records, directory, catalogue)


def summarise(metrics: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, Any]]:
    """Return mean, sample standard deviation and values of each metric over several runs.

    Mean and deviation are None if a run has no value; the deviation is None for a single run.
    """
    summaries = {}
    for name in metrics[0]:
        values = [metric[name] for metric in metrics]
        over = summary(values)
        summaries[name] = {"mean": over.mean, "std": over.std, "values": values}
    return summaries


def _listeners() -> Listeners:
    from lw2g.console.progress import progress_tracker

    return [progress_tracker(console(stderr=True))]


def _uninterrupted(action: Callable[[Listeners], Record], resume_at: Path) -> Record:
    """Run to the end; if interrupted, say how to resume and exit with code 130."""
    from lw2g.base.progress import Interrupted

    try:
        with telling_of_exits(resume_at):
            return action(_listeners())
    except (Interrupted, KeyboardInterrupt) as stop:
        begun = isinstance(stop, Interrupted) or (resume_at / SEEDS).exists()
        go_on = f"; resume with: lw2g resume {resume_at}" if begun else " before anything was learned"
        click.echo(f"interrupted{go_on}", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def _run_to_end(directory: Path, catalogue: Catalogue, action: Callable[[Listeners], Record]) -> None:
    """Run one experiment under a progress display, and tell what it has reached and what comes next."""
    _tell([_uninterrupted(action, directory)], directory, catalogue)


def _tell(records: Sequence[Record], directory: Path, catalogue: Catalogue) -> None:
    """Print what a run, or the runs of several seeds, have reached, and the next commands."""
    first, config = records[0], records[0]["config"]
    done, total = len(first["accuracy_matrix"]), first.get("tasks")
    over = {name: summary([record["metrics"][name] for record in records]) for name in first["metrics"]}
    metrics = {name: _text(name, of) for name, of in over.items() if of.mean is not None}
    for line in in_words(metrics, done, total, grows=catalogue.grows(config["baseline"]["name"])):
        click.echo(line)
    if total is not None and done < total:
        click.echo(f"stopped after {done} of {total} tasks; go on with: lw2g continue {directory}")
    click.echo(f"{'run' if len(records) == 1 else 'runs'}: {directory} (all numbers: lw2g show {directory})")
    shipped = (config["benchmark"]["name"], config["backbone"]["name"]) == (
        DEFAULT_BENCHMARK,
        DEFAULT_BACKBONE,
    )
    if shipped and config["baseline"]["name"] not in RECOMMENDED.split():
        click.echo(f"next, the recommended method: lw2g run {RECOMMENDED}")


def _text(name: str, over: MeanStd) -> str:
    """Return the mean of a metric, and its deviation if runs differ; equal counts stay whole."""
    digits = 0 if name == "ssp" and not over.std else 1
    return f"{over.mean:.{digits}f}" + (f" ± {over.std:.1f}" if over.std else "")
