"""The functions of lw2g: what its commands do, from Python. Those that run experiments are here.

Commands and functions run the same code; a function returns what its command prints. Importing this module
imports neither torch nor any plugin.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lw2g.api.arguments import (
    METHODS,
    SHORT,
    as_options,
    as_plain,
    choice_of_word,
    with_short,
    word_of_method,
)
from lw2g.api.experiment import Begun, experiment_of, fork_of
from lw2g.api.given_objects import Locals, as_names, catalogue_of, split_trackers
from lw2g.errors import ConfigError
from lw2g.ground.notes import tell_note, tell_warning
from lw2g.ground.spelling import as_device, expands_paths
from lw2g.interfaces.tracker import Warned
from lw2g.runtime.console import console

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lw2g.api.tabular import RunRecord
    from lw2g.interfaces.component import Kind
    from lw2g.interfaces.tracker import Event, Tracker

__all__ = ["continue_run", "fork", "resume", "run"]


@expands_paths
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
    recommended: bool = False,
    trained: bool = False,
    out: str | Path | None = None,
    tasks: int | None = None,
    progress: bool = True,
    **options: Any,
) -> RunRecord:
    """Run an experiment: a TOML file, or names and options, or both (options win).

    Without arguments it runs the embedded default. Growth policies (``lw2g plugins``) bring the constraints
    orthogonal and cpk unless others are named; ``always`` brings none: it is the published baseline.

    From Python, ``{"name": "dual-prompt", "head": "lda"}`` in place of a name sets options, too: so for
    ``baseline``, ``policy``, ``retrieval``, ``benchmark`` and ``backbone``.

    From Python, ``baseline``, ``retrieval``, ``policy`` and ``constraints`` take in place of a name a class
    with their interface, or a record such as :class:`~lw2g.interfaces.component.BaselineComponent`;
    ``policy`` also an object with ``decide``, or a function ``decide(evidence)``.

    Args:
        config: A TOML file.
        baseline: The method, such as hide-prompt (``lw2g plugins`` lists all).
        policy: Growth policy, when a set is added: min (default), one, always ... (``lw2g plugins``).
        constraints: Constraint in place of the policy's own, ``none`` for none; a list for several.
        retrieval: Retrieval strategy in place of the baseline's own.
        benchmark: The stream of tasks: folder, cifar100, glyphs ... (``lw2g plugins``). From Python a name,
            a folder, or images: ``[(train, test), ...]``, a pair per task, or one ``(train, test)``, which
            ``increment`` cuts into tasks; with ``test_share`` one split, of which that share tests. A split
            is a torch data set, a pair ``(images, labels)`` of arrays, a list of ``(path, label)``, or a
            Hugging Face data set. ``"owner/name"`` is a data set of the Hugging Face hub if there is no such
            folder.
        backbone: The frozen backbone, or any timm model. From Python also a timm model as an object, without
            a classifier and in evaluation mode.
        weights: Weights of the backbone, a file or a folder of the hub. From Python not beside a model as an
            object.
        trackers: Receives the run's events, such as tensorboard; a list for several. From Python also an
            object with ``on_event``, or a function of an event.
        recommended: Whether to run the recommended method, which trains nothing, in place of ``baseline``.
        trained: Whether to run the method that trains, on the first task alone, in place of ``baseline``.
        out: The run's directory; None for a new one in runs/.
        tasks: Number of tasks after which to stop; ``lw2g continue`` continues as if the run had not stopped;
            None for all.
        progress: Whether to show the progress: a bar in notebooks and on terminals, else lines on stderr.
        **options: Any option by its dotted key, such as ``growth.energy=0.99``. From Python as in
            ``run(policy="min", **{"growth.energy": 0.99})``; without their section stand ``protocol``,
            ``seed``, ``device``, ``devices``, ``precision``; ``increment``, ``test_share``, ``split_seed``,
            ``order`` and ``order_seed`` of the benchmark; and ``epochs`` of the baseline.

    Returns:
        The run's record.

    Raises:
        ConfigError: The configuration is invalid; the message lists every problem.
        DataError: The images cannot be used.
        Interrupted: Ctrl-C stopped the run, which can be resumed.
    """

    if "seeds" in options or isinstance(as_plain(options.get("seed")), list | tuple | range | set):
        raise ConfigError(
            "seed: a call runs one",
            "for several [lw2g.run(..., seed=seed) for seed in seeds], or lw2g.sweep with the axes "
            '{"seed": [0, 1]}; then lw2g.report',
        )
    word = word_of_method({"recommended": recommended, "trained": trained, "baseline": baseline})
    if word:
        baseline = choice_of_word(word)
    local = Locals()
    tracker_names, listeners = split_trackers(trackers)
    given: dict[Kind, Any] = {
        "baseline": baseline,
        "retrieval": retrieval,
        "policy": policy,
        "benchmark": benchmark,
        "backbone": backbone,
    }
    further = {"constraints": as_names("constraint", constraints, local), "trackers": tracker_names}
    file = Path(config) if config else None
    keyed = as_options(given, options, further, file)
    if weights is not None and SHORT["weights"] in keyed:
        raise ConfigError(f"{SHORT['weights']} is given twice", "leave weights=... out, or the other")
    # objects are registered before the catalogue is loaded, which then knows them by these names
    named: dict[str, Any] = {kind: local.name(kind, keyed.get(SHORT[kind])) for kind in given}
    keyed = with_short(keyed, {**named, **further, "weights": weights})
    experiment = experiment_of(file, keyed, local.catalogue())
    # only now is it known how many processes the run has
    local.require_reach(experiment.config)
    told = "" if config else experiment.rule_note(keyed, 'policy="{}"')
    for text in filter(None, (*experiment.notes, told)):
        tell_note(text)
    with experiment.new_directory(out) as directory:
        return experiment.start(directory, [*listeners, *_listeners(progress)], tasks=tasks)


@expands_paths
def resume(
    run: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    devices: int | None = None,
    trackers: Any = (),
    local: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> RunRecord:
    """Resume the run in the directory ``run`` from its newest intact checkpoint.

    The result equals that of an uninterrupted run.

    Args:
        run: The run's directory.
        settings: Where data that have moved lie now, such as ``benchmark.root=FOLDER``; noted in the run.
        devices: Number of processes from now on; None for the configured number.
        trackers: Objects with ``on_event``, or functions of an event, beside the run's own trackers.
        local: The objects that the run began with in place of names, by kind, as in
            ``{"baseline": MyBaseline, "benchmark": [(train, test), ...]}``.
        progress: As for :func:`run`.

    Returns:
        The run's record.

    Raises:
        DataError: There is no run, or its configuration, data or weights have changed.
        UnknownComponentError: An object that the run began with is missing in ``local``.
        Interrupted: Ctrl-C stopped the run, which can be resumed again.
    """
    begun = Begun(Path(run), catalogue_of(local, run, goes_on=True, devices=devices))
    receivers = [*_callbacks(trackers), *_listeners(progress)]
    return begun.resume(receivers, settings=as_plain(settings), devices=devices)


@expands_paths
def continue_run(
    run: str | Path,
    *,
    tasks: int | None = None,
    benchmark: str | None = None,
    settings: Mapping[str, Any] | None = None,
    devices: int | None = None,
    trackers: Any = (),
    local: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> RunRecord:
    """Continue the run in the directory ``run`` to the end of its stream, or to the task ``tasks``.

    The result equals that of a run without a stop.

    A run at the end of its stream continues with the classes of another benchmark. Their images go through
    the run's own transforms. The data of both benchmarks must be present, since all classes are evaluated.

    Args:
        run: The run's directory.
        tasks: Number of tasks, counted from the first, after which to stop; None for all.
        benchmark: Benchmark with new classes, for a run at the end of its stream.
        settings: Options of that benchmark by their dotted keys, such as ``benchmark.root=FOLDER``; without
            one, where the run's own data lie now.
        devices: Number of processes from now on; None for the configured number.
        trackers: As for :func:`resume`.
        local: As for :func:`resume`.
        progress: As for :func:`run`.

    Returns:
        The run's record.

    Raises:
        DataError: There is no run, or its configuration, data or weights have changed.
        ConfigError: It has finished that many tasks, or its stream has fewer.
        Interrupted: Ctrl-C stopped the run, which can be resumed.
    """
    begun = Begun(Path(run), catalogue_of(local, run, goes_on=True, devices=devices))
    receivers = [*_callbacks(trackers), *_listeners(progress)]
    moved = as_plain(settings)
    return begun.go_on(receivers, tasks=tasks, benchmark=benchmark, settings=moved, devices=devices)


@expands_paths
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
    """Start a run from the end of a task of the run in the directory ``run``, which stays unchanged.

    It takes over the tasks 1 to ``at_task``. Choices that are not named stay. If nothing changes, the new run
    repeats the old one. Options that these tasks depend on cannot change. Decisions are forced by
    ``--policy fixed --set policy.map=[0,0,1]``.

    Args:
        run: The other run's directory.
        at_task: Number of tasks to take over.
        out: The new run's directory; None for a new one under runs/.
        policy: Growth policy from there on; constraints stay.
        constraints: Constraint from there on in place of the run's, ``none`` for none; a list for several.
        tasks: Number of tasks, counted from the first, after which to stop; None for all.
        trackers: As for :func:`resume`.
        local: As for :func:`resume`.
        progress: As for :func:`run`.
        **overrides: Any option by its dotted key, such as ``policy.map=[0,0,1]``. From Python as in
            ``**{"policy.map": [0, 0, 1]}``.

    Returns:
        The record of the new run.

    Raises:
        DataError: There is no such run or task, or its files, data or weights have changed.
        ConfigError: The finished tasks depend on a changed option.
        Interrupted: Ctrl-C stopped the new run, which can be resumed.
    """
    for name in ("baseline", *METHODS):
        if name in overrides:
            raise ConfigError(f"{name}: no such argument", "a fork keeps its method; start a new run")
    known = Locals.of(local)
    experiment = fork_of(
        run,
        at_task,
        policy=known.name("policy", policy),
        constraints=as_names("constraint", constraints, known),
        overrides={
            key: as_device(value) if key == SHORT["device"] else as_plain(value)
            for key, value in overrides.items()
        },
        catalogue=known.catalogue(Path(run)),
    )
    known.require_reach(experiment.config)
    with experiment.new_directory(out) as directory:
        receivers = [*_callbacks(trackers), *_listeners(progress)]
        return experiment.start(directory, receivers, tasks=tasks)


def _callbacks(trackers: Any) -> Sequence[Tracker]:
    """Return listeners; trackers with names belong to a run's configuration."""
    names, listeners = split_trackers(trackers)
    if names:
        raise ConfigError(
            f"trackers: {names[0]!r} is a name, and a run keeps the trackers that it began with",
            "give an object with on_event",
        )
    return listeners


class _Warnings:
    """Tells warnings alone, such as that a tracker fails."""

    def on_event(self, event: Event) -> None:
        """Log a warning."""
        if isinstance(event, Warned):
            tell_warning(event.message)

    def close(self) -> None:
        """Nothing to close."""


def _listeners(progress: bool) -> list[Tracker]:
    if not progress:
        return [_Warnings()]
    from lw2g.runtime.progress_display import progress_tracker

    return [progress_tracker(console(stderr=True))]
