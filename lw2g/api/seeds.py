"""Runs of one experiment with several seeds, each in a directory of its own below a common one.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from lw2g.api.experiment import Experiment
from lw2g.errors import ConfigError, DataError
from lw2g.spelling import expands_paths

if TYPE_CHECKING:
    from lw2g.api.results import RunRecord
    from lw2g.interfaces.tracker import Tracker
    from lw2g.registry.catalogue import Catalogue
    from lw2g.reports.statistics import MeanStd

__all__ = ["continue_seeds", "holds_seeds", "over_runs", "resume_seeds", "run_seeds", "summarise"]

Begins = Callable[[int, Path], "Sequence[Tracker]"]
"""Is told a seed and its directory before its run, and returns listeners for it."""


def _unheard(seed: int, directory: Path) -> Sequence[Tracker]:
    return ()


@expands_paths
def holds_seeds(directory: str | Path) -> bool:
    """Return whether a directory holds the runs of several seeds."""
    from lw2g.config.directory import SEEDS

    return (Path(directory) / SEEDS).exists()


def run_seeds(
    experiment: Experiment,
    directory: Path,
    seeds: Sequence[int],
    *,
    tasks: int | None = None,
    begins: Begins = _unheard,
) -> list[RunRecord]:
    """Run an experiment once per seed and return the records; mean and deviation are written beside them.

    Args:
        experiment: The experiment.
        directory: As :meth:`~lw2g.api.experiment.Experiment.new_directory` makes it.
        seeds: A run per seed.
        tasks: Number of tasks after which each run stops; None for all.
        begins: Is told a seed and its directory before its run, and returns listeners for it.

    Raises:
        Interrupted: Ctrl-C stopped a run; :func:`resume_seeds` goes on.
    """
    from lw2g.config.directory import EXPERIMENT, SEEDS
    from lw2g.config.toml import dump_resolved
    from lw2g.files.sealed import seal_json, sha256_of, write_atomically

    # the plan seals the experiment: resumed after an edit, its seeds would be runs of two experiments
    write_atomically(directory / EXPERIMENT, dump_resolved(experiment.resolved).encode())
    plan = {"seeds": list(seeds), "experiment": sha256_of(directory / EXPERIMENT), "tasks": tasks}
    write_atomically(directory / SEEDS, seal_json(plan))
    return _go_on(experiment, directory, seeds, tasks, begins)


def resume_seeds(
    directory: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    devices: int | None = None,
    begins: Begins = _unheard,
    catalogue: Catalogue | None = None,
) -> list[RunRecord]:
    """Resume the runs that :func:`run_seeds` has not finished, and return all records.

    Args:
        directory: The directory of all seeds.
        settings: Where data that have moved lie now, as for :func:`lw2g.resume`.
        devices: Number of processes from now on; None for the configured number.
        begins: As for :func:`run_seeds`.
        catalogue: The components; None loads those that are installed.

    Raises:
        DataError: A file of the directory is damaged or was exchanged.
        Interrupted: Ctrl-C stopped a run.
    """
    plan, experiment = _read_plan(directory, catalogue)
    return _go_on(experiment, directory, plan["seeds"], plan.get("tasks"), begins, devices, settings)


def continue_seeds(
    directory: Path,
    *,
    tasks: int | None = None,
    settings: Mapping[str, Any] | None = None,
    devices: int | None = None,
    begins: Begins = _unheard,
    catalogue: Catalogue | None = None,
) -> list[RunRecord]:
    """Continue the runs of several seeds that stopped on purpose, and return all records.

    Args:
        directory: The directory of all seeds.
        tasks: Number of tasks, counted from the first, after which each run stops; None for all.
        settings: As for :func:`resume_seeds`.
        devices: Number of processes from now on; None for the configured number.
        begins: As for :func:`run_seeds`.
        catalogue: As for :func:`resume_seeds`.

    Raises:
        ConfigError: The runs are to stop later than that.
        DataError: A file of the directory is damaged or was exchanged.
        Interrupted: Ctrl-C stopped a run.
    """
    from lw2g.config.directory import SEEDS
    from lw2g.files.sealed import seal_json, write_atomically

    plan, experiment = _read_plan(directory, catalogue)
    before = plan.get("tasks")
    if tasks is not None and (before is None or tasks < before):
        goal = "are to learn the whole stream"
        if before is not None:
            goal = f"are to stop after task {before}"
        raise ConfigError(f"cannot stop after task {tasks}: the runs {goal}", "name no smaller number")
    # before the first run: a killed process is resumed to the new number
    write_atomically(directory / SEEDS, seal_json(plan | {"tasks": tasks}))
    try:
        return _go_on(experiment, directory, plan["seeds"], tasks, begins, devices, settings)
    except ConfigError:  # nothing was run
        write_atomically(directory / SEEDS, seal_json(plan))
        raise


def _read_plan(directory: Path, catalogue: Catalogue | None) -> tuple[dict[str, Any], Experiment]:
    """Return the content of ``seeds.json`` and the experiment.

    Raises:
        DataError: The experiment is not the one that the runs began with.
    """
    from lw2g.config.directory import EXPERIMENT, SEEDS
    from lw2g.config.resolve import load_resolved
    from lw2g.files.contents import Seeds, read_sealed
    from lw2g.files.sealed import sha256_of
    from lw2g.registry.catalogue import load_catalogue

    if catalogue is None:
        catalogue = load_catalogue()
    plan = read_sealed(directory / SEEDS, Seeds)
    file = directory / EXPERIMENT
    if sha256_of(file) != plan["experiment"]:
        raise DataError(f"{str(file)!r} is not the one the runs began with", "put it back")
    return plan, Experiment(load_resolved(file, catalogue), catalogue)


def _go_on(
    experiment: Experiment,
    directory: Path,
    seeds: Sequence[int],
    tasks: int | None,
    begins: Begins,
    devices: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[RunRecord]:
    """Start the runs that have not begun, continue the others, and write the summary."""
    from lw2g.config.directory import SUMMARY
    from lw2g.files.sealed import seal_json, write_atomically

    records = []
    for seed in seeds:
        place = directory / f"seed-{seed}"
        listeners = begins(seed, place)
        records.append(
            _start_or_continue(experiment, directory, seed, place, listeners, tasks, devices, settings)
        )
    content = {
        "seeds": list(seeds),
        "protocol": experiment.config.run.protocol,
        "metrics": summarise([record["metrics"] for record in records]),
    }
    write_atomically(directory / SUMMARY, seal_json(content))
    return records


def _start_or_continue(
    experiment: Experiment,
    directory: Path,
    seed: int,
    place: Path,
    listeners: Sequence[Tracker],
    tasks: int | None,
    devices: int | None,
    settings: Mapping[str, Any] | None,
) -> RunRecord:
    """Start or continue the run of a seed in its place."""
    from lw2g.api.results import RunRecord
    from lw2g.config.directory import CONFIG, SETTLED
    from lw2g.config.sources import moved_source
    from lw2g.lifecycle.continuing import proceed

    # written before anything is learned: without it the run has not begun
    if (place / CONFIG).exists():
        record = proceed(
            place, experiment.catalogue, listeners, tasks=tasks, devices=devices, settings=settings
        )
        return RunRecord(record, place)
    options = attrs.evolve(experiment.config.run, seed=seed)
    if devices is not None:
        options = attrs.evolve(options, devices=devices)
    config = attrs.evolve(experiment.config, run=options)
    if settings:
        config = attrs.evolve(config, benchmark=moved_source(config.benchmark, settings))
    seeded = Experiment(attrs.evolve(experiment.resolved, config=config), experiment.catalogue)
    # what auto settled on for the first seed holds for all: only the seed differs
    return seeded.start(place, listeners, tasks=tasks, settled=directory / SETTLED)


def summarise(metrics: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, Any]]:
    """Return mean, sample standard deviation and values of each metric over several runs.

    Mean and deviation are None if a run has no value; the deviation is None for a single run.
    """
    summaries = {}
    for name, over in over_runs(metrics).items():
        values = [of_run[name] for of_run in metrics]
        summaries[name] = {"mean": over.mean, "std": over.std, "values": values}
    return summaries


def over_runs(metrics: Sequence[Mapping[str, float | None]]) -> dict[str, MeanStd]:
    """Return mean and sample standard deviation of each metric over several runs."""
    from lw2g.reports.statistics import summary

    return {name: summary([of_run[name] for of_run in metrics]) for name in metrics[0]}
