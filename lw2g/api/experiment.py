"""Experiments before they run: configured completely, announced, estimated, started; and runs that go on.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from lw2g.api.tabular import RunRecord
from lw2g.config.directory import CONFIG, new_directory, require_new
from lw2g.config.explain import explain_resolved
from lw2g.config.own_rule import own_rule, rule_note
from lw2g.config.protocols import LIKE_FOR_LIKE, OFFICIAL
from lw2g.config.resolve import resolve
from lw2g.config.sources import resolve_source
from lw2g.config.toml import to_mapping
from lw2g.config.unknown import require_file
from lw2g.errors import ConfigError, DataError, as_word
from lw2g.ground.spelling import expands_paths
from lw2g.interfaces.dataset import default_root
from lw2g.interfaces.defaults import DEFAULT_FIXED_POLICY, PHOTO_BACKBONE
from lw2g.pixels.small_drawings import require_drawings
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.runtime.collector import collector_waits
from lw2g.runtime.console import method_name

if TYPE_CHECKING:
    from lw2g.config.settings import ExperimentConfig, Resolved
    from lw2g.interfaces.dataset import DataSet
    from lw2g.interfaces.tracker import Tracker
    from lw2g.lifecycle.estimate import Estimate

__all__ = ["Begun", "Experiment", "Fork", "experiment_of", "fork_of", "load_engine"]


class Experiment:
    """An experiment with a complete and valid configuration.

    Attributes:
        resolved: The configuration, and where its values come from.
        catalogue: Where its components come from.
        reads: What it reads in addition to its data.
    """

    reads: Sequence[Path] = ()

    def __init__(self, resolved: Resolved, catalogue: Catalogue) -> None:
        self.resolved = resolved
        self.catalogue = catalogue

    @property
    def config(self) -> ExperimentConfig:
        """The configuration."""
        return self.resolved.config

    @property
    def notes(self) -> Sequence[str]:
        """What was noticed while the options were put together."""
        return self.resolved.notes

    @property
    def named(self) -> str:
        """Its method, benchmark and backbone by their names."""
        config = to_mapping(self.config)
        method = method_name(config, grows=self.catalogue.grows(config["baseline"]["name"]))
        return f"{method}, benchmark {config['benchmark']['name']}, backbone {config['backbone']['name']}"

    def announcements(self) -> Iterator[str]:
        """Yield what a user should know before it runs, a line each."""
        config = self.config
        if config.run.protocol == OFFICIAL:
            yield (
                f"options, transforms and class order are those of the authors of {config.baseline.name}; "
                f"those that are equal for all methods: --protocol {LIKE_FOR_LIKE}"
            )
        yield from self.notes
        if getattr(config.baseline.config, "epochs", None) == 0:
            yield "baseline.epochs=0: nothing is trained by gradient steps on the tasks' images"
        chosen = (
            self.catalogue.get("benchmark", config.benchmark.name),
            self.catalogue.get("backbone", config.backbone.name),
        )
        embedded = [component.name for component in chosen if component.embedded]
        if embedded:
            named = " and ".join(embedded)
            yield f"{named}: embedded defaults to learn and test with, never results to publish"

    def rule_note(self, named: Container[str], spelled: str) -> str:
        """Return the note that a published method is run under lw2g's rule; empty where it is not.

        Args:
            named: The keys of the options that a user has given.
            spelled: How a policy is asked for, such as ``--policy {}``.
        """
        own = own_rule(self.config, self.catalogue, named)
        if not own:
            return ""
        return rule_note(own, self.config.baseline.name, spelled.format(DEFAULT_FIXED_POLICY))

    def to_toml(self) -> str:
        """Write out the complete configuration as TOML, with a comment on each option; nothing is run."""
        return explain_resolved(self.resolved)

    def missing_data(self) -> tuple[DataSet, Path] | None:
        """Return the published data set that its benchmark reads and where it should lie; None if it does.

        Benchmarks of no such data set have none to miss.
        """
        chosen = self.config.benchmark
        component = self.catalogue.get("benchmark", chosen.name)
        data = component.data
        if data is None:
            return None
        root = default_root() if chosen.config.root is None else chosen.config.root.absolute()
        return None if data.lies_below(root) else (data, root)

    def cost(
        self, *, tasks: int | None = None, runs: int = 1, out: Path | None = None
    ) -> tuple[Estimate | None, list[str]]:
        """Estimate what it costs on some images of its first two tasks; nothing is written.

        Args:
            tasks: As for :func:`lw2g.run`.
            runs: How many runs of it are meant, such as one per seed.
            out: The directory that it is to have.

        Returns:
            The cost, None without data and weights; and a line for each missing part: these, and packages.

        Raises:
            Lw2gError: It cannot be run, and nothing is missing; or the directory is in use.
        """
        from lw2g.lifecycle.estimate import missing_packages, missing_parts, seconds_to_start

        if out is not None:
            require_new(self.config, out, inputs=self.reads)
        packages = missing_packages(self.config, self.catalogue)
        try:
            cost = self._estimate(tasks)
        except (ConfigError, DataError):
            # without its data or weights there is nothing to measure, and a list of them to give
            missing = missing_parts(self.config, self.catalogue)
            if not missing:
                raise
            return None, missing + packages
        if runs > 1:  # each is a process of its own
            cost = cost.in_process(seconds_to_start())
        return cost.times(runs), packages

    def _estimate(self, tasks: int | None) -> Estimate:
        from lw2g.lifecycle.estimate import estimate

        return estimate(self.config, self.catalogue, tasks=tasks)

    @contextmanager
    @expands_paths
    def new_directory(self, out: str | Path | None = None) -> Iterator[Path]:
        """Make the directory of a run of it, and remove it after an error that left it empty.

        Args:
            out: The directory; None for a new one under ``runs/``.

        Raises:
            ConfigError: The directory is in use, or its path is not valid.
        """
        place = None if out is None else Path(out)
        grows = self.catalogue.grows(self.config.baseline.name)
        with new_directory(self.config, place, inputs=self.reads, grows=grows) as directory:
            yield directory

    def start(
        self,
        directory: Path,
        listeners: Sequence[Tracker] = (),
        *,
        tasks: int | None = None,
        settled: Path | None = None,
    ) -> RunRecord:
        """Run it and return the record.

        Args:
            directory: As :meth:`new_directory` makes it.
            listeners: Receive the run's events.
            tasks: Number of tasks after which to stop; None for all.
            settled: A folder that runs share which are to compute alike, as the cells of a sweep: what
                ``auto`` settled on.

        Raises:
            ConfigError: It cannot be built as configured.
            ComponentError: A component raised an error.
            Interrupted: Ctrl-C stopped the run, which can be resumed.
        """
        from lw2g.lifecycle.runner import start

        record = start(self.resolved, self.catalogue, directory, listeners, tasks=tasks, settled=settled)
        return RunRecord(record, directory)


class Fork(Experiment):
    """An experiment that goes on from the end of a task of another run.

    Attributes:
        parent: The other run's directory.
        task: Number of tasks that it takes over.
    """

    def __init__(self, resolved: Resolved, catalogue: Catalogue, parent: Path, task: int) -> None:
        super().__init__(resolved, catalogue)
        self.parent = parent
        self.task = task
        self.reads = (parent,)

    def announcements(self) -> Iterator[str]:
        """Yield what was noticed about its options; the other run has told the rest."""
        yield from self.notes

    def _estimate(self, tasks: int | None) -> Estimate:
        from lw2g.lifecycle.forking import estimate_fork

        return estimate_fork(self.parent, self.task - 1, self.resolved, self.catalogue, tasks=tasks)

    def start(
        self,
        directory: Path,
        listeners: Sequence[Tracker] = (),
        *,
        tasks: int | None = None,
        settled: Path | None = None,
    ) -> RunRecord:
        """Run it from the end of the task and return the record.

        Args:
            directory: As :meth:`new_directory` makes it.
            listeners: Receive the run's events.
            tasks: Number of tasks, counted from the first, after which to stop; None for all.
            settled: Has no effect: what was settled holds as for the other run.

        Raises:
            DataError: There is no such task, or the other run's files, data or weights have changed.
            ConfigError: The finished tasks depend on a changed option.
            Interrupted: Ctrl-C stopped the run, which can be resumed.
        """
        from lw2g.lifecycle.forking import fork

        # within lw2g tasks count from 0
        last = self.task - 1
        record = fork(self.parent, last, self.resolved, self.catalogue, directory, listeners, tasks=tasks)
        return RunRecord(record, directory)


@attrs.frozen
class Begun:
    """A run that has begun and can go on.

    Attributes:
        directory: The run's directory.
        catalogue: The components.
    """

    directory: Path
    catalogue: Catalogue

    def resume(
        self,
        listeners: Sequence[Tracker] = (),
        *,
        settings: Mapping[str, Any] | None = None,
        devices: int | None = None,
    ) -> RunRecord:
        """Resume the run from its newest intact checkpoint (:func:`lw2g.resume`)."""
        _require_devices(devices)
        from lw2g.lifecycle.runner import resume

        record = resume(self.directory, self.catalogue, listeners, devices=devices, settings=settings)
        return RunRecord(record, self.directory)

    def go_on(
        self,
        listeners: Sequence[Tracker] = (),
        *,
        tasks: int | None = None,
        benchmark: str | None = None,
        settings: Mapping[str, Any] | None = None,
        devices: int | None = None,
    ) -> RunRecord:
        """Continue the run after a stop, or with the classes of another benchmark.

        Arguments and errors are those of :func:`lw2g.continue_run`.
        """
        _require_devices(devices)
        if benchmark is None:
            from lw2g.lifecycle.continuing import proceed

            record = proceed(
                self.directory, self.catalogue, listeners, tasks=tasks, devices=devices, settings=settings
            )
            return RunRecord(record, self.directory)
        from lw2g.lifecycle.continuing import extend

        source = resolve_source(self.catalogue, benchmark, settings or {})
        record = extend(self.directory, source, self.catalogue, listeners, tasks=tasks, devices=devices)
        return RunRecord(record, self.directory)


def _require_devices(devices: int | None) -> None:
    """Refuse a number of processes that is none.

    Raises:
        ConfigError: It is below one.
    """
    if devices is not None and devices < 1:
        raise ConfigError(
            f"--devices: expected at least 1 process but got {devices}", "leave it out for the run's own"
        )


def experiment_of(
    file: Path | None, options: Mapping[str, Any], catalogue: Catalogue | None = None
) -> Experiment:
    """Put an experiment together.

    Args:
        file: A TOML file.
        options: Options by their dotted keys, which override the file's: ``policy.name`` is the policy, and
            ``constraints`` has names.
        catalogue: Where components are looked up; None for all that are installed.

    Raises:
        ConfigError: The configuration is invalid, and the message lists every problem; or the images are
            photographs, and nobody has named a backbone.
    """
    if file is not None and (file / CONFIG).is_file():
        raise ConfigError(
            f"{str(file)!r} is a run and no TOML file",
            f"go on with it: lw2g resume {as_word(file)}, or run it anew: lw2g run {as_word(file / CONFIG)}",
        )
    if file is not None and file.is_dir():
        raise ConfigError(
            f"{str(file)!r} is a folder and no TOML file",
            f"of images: benchmark={str(file)!r}, backbone={PHOTO_BACKBONE!r}",
        )
    if catalogue is None:
        catalogue = load_catalogue()
    if file is not None:
        require_file(file, catalogue)
    resolved = resolve(catalogue, file=file, overrides=options)
    require_drawings(resolved, catalogue)
    return Experiment(resolved, catalogue)


@expands_paths
def fork_of(
    run: str | Path,
    at_task: int,
    *,
    policy: str | None = None,
    constraints: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    catalogue: Catalogue | None = None,
) -> Fork:
    """Put an experiment together that goes on from the end of a task of another run.

    Args:
        run: As for :func:`lw2g.fork`.
        at_task: As for :func:`lw2g.fork`.
        policy: The policy's name.
        constraints: Names of constraints.
        overrides: Single options by their dotted keys.
        catalogue: Where components are looked up; None for those of the run, and for a name that these lack
            all that are installed.

    Raises:
        DataError: There is no such run or task.
        ConfigError: An option cannot be used.
    """
    from lw2g.disk.origins import made_with
    from lw2g.disk.stored_run import require_task
    from lw2g.lifecycle.forking import resolve_fork

    parent = Path(run)
    require_task(parent, at_task - 1)  # a task that is missing is told before what is noticed of options
    if catalogue is None:
        catalogue = load_catalogue(made_with=made_with(parent))
    resolved = resolve_fork(parent, catalogue, policy=policy, constraints=constraints, overrides=overrides)
    return Fork(resolved, catalogue, parent, at_task)


def load_engine() -> None:
    """Import what runs need, torch among it, before a run is announced."""
    # it takes seconds, in which a run that has been announced would seem to hang
    with collector_waits():
        for name in ("runner", "continuing"):
            import_module(f"lw2g.lifecycle.{name}")
