"""Running one or several experiments from a command: notes before, progress meanwhile, metrics after."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.cli.output import console, note, print_metrics, print_summary
from lw2g.errors import DataError
from lw2g.training.sealed import seal_json, sha256_of, unseal_json, write_atomically

if TYPE_CHECKING:
    from lw2g.config.model import Resolved
    from lw2g.registry.catalogue import Catalogue

__all__ = ["announce", "resume_one", "resume_seeds", "run_one", "run_seeds", "summarise"]

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


def run_one(resolved: Resolved, catalogue: Catalogue, directory: Path) -> None:
    """Run one experiment and print its metrics."""
    with _collector_waits():
        from lw2g.training.runner import start

    listeners = _listeners()
    record = _uninterrupted(lambda: start(resolved, catalogue, directory, listeners), directory)
    _conclude(record, directory)


def resume_one(directory: Path, catalogue: Catalogue) -> None:
    """Go on with one experiment and print its metrics."""
    with _collector_waits():
        from lw2g.training.runner import resume

    listeners = _listeners()
    record = _uninterrupted(lambda: resume(directory, catalogue, listeners), directory)
    _conclude(record, directory)


def run_seeds(resolved: Resolved, catalogue: Catalogue, directory: Path, seeds: Sequence[int]) -> None:
    """Run an experiment once per seed, in one directory per seed, and print mean and deviation."""
    from lw2g.config.toml import dump_resolved

    (directory / "experiment.toml").write_text(dump_resolved(resolved), encoding="utf-8")
    experiment = sha256_of(directory / "experiment.toml")
    write_atomically(directory / "seeds.json", seal_json({"seeds": list(seeds), "experiment": experiment}))
    _go_on_with_seeds(resolved, catalogue, directory, seeds)


def resume_seeds(directory: Path, catalogue: Catalogue) -> None:
    """Go on with the runs that :func:`run_seeds` has not finished."""
    from lw2g.config.resolve import load_resolved

    told = unseal_json(directory / "seeds.json")
    experiment = directory / "experiment.toml"
    if sha256_of(experiment) != told["experiment"]:
        raise DataError(f"{str(experiment)!r} is not the one the runs began with; put it back")
    seeds = told["seeds"]
    resolved = load_resolved(directory / "experiment.toml", catalogue)
    _go_on_with_seeds(resolved, catalogue, directory, seeds)


def _go_on_with_seeds(
    resolved: Resolved, catalogue: Catalogue, directory: Path, seeds: Sequence[int]
) -> None:
    with _collector_waits():
        from lw2g.training.runner import resume, start

    records = []
    for seed in seeds:
        place, listeners = directory / f"seed-{seed}", _listeners()
        config = attrs.evolve(resolved.config, run=attrs.evolve(resolved.config.run, seed=seed))
        seeded = attrs.evolve(resolved, config=config)
        click.echo(f"seed {seed}: {place}", err=True)

        def go(place: Path = place, seeded: Resolved = seeded, listeners: Any = listeners) -> Record:
            if (place / "config.toml").exists():
                return resume(place, catalogue, listeners)
            return start(seeded, catalogue, place, listeners)

        records.append(_uninterrupted(go, directory))
    summary = {
        "seeds": list(seeds),
        "protocol": resolved.config.run.protocol,
        "metrics": summarise([record["metrics"] for record in records]),
    }
    write_atomically(directory / "summary.json", seal_json(summary))
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
    """Keep the garbage collector from running during imports.

    Those of torch and timm make so many objects that the collector, which looks through all of them again and
    again, takes a fifth of their time.
    """
    gc.disable()
    try:
        yield
    finally:
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
        begun = isinstance(stop, Interrupted) or (resume_at / "seeds.json").exists()
        go_on = f"; resume with: lw2g resume {resume_at}" if begun else " before anything was learned"
        click.echo(f"interrupted{go_on}", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def _conclude(record: Record, directory: Path) -> None:
    print_metrics(record)
    click.echo(f"run: {directory} (details: lw2g show {directory})")
