"""What an event of a run holds for a tracker: options, curves, tables and pictures, each under a name.

Only this module knows events; a tracker passes on what it gets from here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from lw2g.plugin import EpochEnded, Event, RunEnded, RunStarted, TaskDecided, TaskEvaluated, leaves
from lw2g_trackers.logged_pictures import Picture, heat_map

__all__ = ["Content", "LoggedTable", "content_of"]

_NUMBERS = ("value", "error", "null", "own")
"""The numbers that every measure gives for a set; its parts have names of their own."""


@attrs.frozen(kw_only=True)
class LoggedTable:
    """A table of text and numbers; None is undefined."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def markdown(self) -> str:
        """Return it as Markdown, numbers with two decimals.

        >>> print(LoggedTable(name="t", columns=("set", "z"), rows=((0, -1.234), (1, None))).markdown())
        | set | z |
        | --- | --- |
        | 0 | -1.23 |
        | 1 | - |
        """
        lines: list[Iterable[str]] = [self.columns, ("---",) * len(self.columns)]
        for row in self.rows:
            lines.append(map(_shown, row))
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@attrs.frozen(kw_only=True)
class Content:
    """The content of one event.

    Attributes:
        step: Where curves, tables and pictures belong: the task, or the epoch over all tasks, counted from 1.
        parameters: Options by their dotted keys; only when a run starts or is resumed.
        scalars: Points of curves.
        tables: Decisions and final results.
        pictures: Confusion of classes and tasks, and of retrieval.
        final: The run's metrics; only when it has ended.
    """

    step: int = 0
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    scalars: Mapping[str, float] = attrs.field(factory=dict)
    tables: tuple[LoggedTable, ...] = ()
    pictures: tuple[Picture, ...] = ()
    final: Mapping[str, float] = attrs.field(factory=dict)


def content_of(event: Event, directory: Path) -> Content:
    """Return the content of an event.

    Args:
        event: Any event of a run.
        directory: The run's directory: pictures are drawn from its predictions, the final table from its
            record, where they are there.
    """
    match event:
        case RunStarted():
            # an undefined option is left out: no service has a value for it
            options = {key: value for key, value in leaves(event.config) if value is not None}
            return Content(parameters=options)
        case EpochEnded():
            scalars = {
                f"{event.phase}/loss": event.loss,
                f"{event.phase}/lr": event.lr,
                f"{event.phase}/images_per_second": event.images_per_second,
            }
            return Content(step=event.task * event.epochs + event.epoch + 1, scalars=scalars)
        case TaskDecided():
            return _decided(event)
        case TaskEvaluated():
            return _evaluated(event, directory)
        case RunEnded():
            return _ended(event, directory)
        case _:
            return Content()


def _decided(event: TaskDecided) -> Content:
    """Return what was measured of each set, and what was decided."""
    decision = event.decision
    rows: list[tuple[Any, ...]] = []
    scalars = {}
    for candidate in decision.get("candidates", ()):
        for name, measured in candidate["measures"].items():
            numbers = {key: measured.get(key) for key in _NUMBERS}
            rows.append((f"#{candidate['set']}", name, *numbers.values()))
            for key, value in (numbers | measured["parts"]).items():
                if value is None:
                    continue
                # the measure's own curve has its name, the numbers beside it stand below
                curve = name if key == "value" else f"{name}/{key}"
                scalars[f"evidence/{curve}/set-{candidate['set']}"] = float(value)
    # the last row says what was decided, and has no numbers
    undefined = (None,) * len(_NUMBERS)
    rows.append((f"#{decision['set']}", decision["decision"], *undefined))
    table = LoggedTable(name="decisions", columns=("set", "measure", *_NUMBERS), rows=tuple(rows))
    return Content(step=event.task + 1, scalars=scalars, tables=(table,))


def _evaluated(event: TaskEvaluated, directory: Path) -> Content:
    """Return the metrics and the accuracy of each task after a task, and its pictures."""
    scalars = {}
    for name, value in event.metrics.items():
        if _is_number(value):
            scalars[f"metrics/{name}"] = float(value)
    for kind, values in (("accuracy", event.accuracy), ("retrieval", event.retrieval or ())):
        for task, share in enumerate(values, start=1):
            if share is not None:
                scalars[f"{kind}/task-{task}"] = share
    return Content(step=event.task + 1, scalars=scalars, pictures=tuple(_pictures(event.task, directory)))


def _pictures(task: int, directory: Path) -> Iterator[Picture]:
    """Draw the confusion of classes, tasks and retrieval over all test images of the seen tasks."""
    file = directory / "predictions" / f"task-{task:03d}.safetensors"
    if not file.exists():
        return
    from safetensors.numpy import load_file  # not before it is needed: numpy is slow to import

    rows = load_file(file)
    true = rows["true"].tolist()
    predicted = rows["predicted"].tolist()
    true_tasks = rows["task"].tolist()
    brought = set(zip(true_tasks, true, strict=True))
    first_task: dict[int, int] = {}
    for task_of_image, cls in sorted(brought):  # by task, so that the first one stays
        first_task.setdefault(cls, task_of_image)

    # classes in the order in which the stream brought them; lines where a task ends
    classes = sorted(first_task, key=lambda cls: (first_task[cls], cls))
    number_of_class = {cls: number for number, cls in enumerate(classes)}
    borders = []
    for number in range(1, len(classes)):
        if first_task[classes[number]] != first_task[classes[number - 1]]:
            borders.append(number)
    pairs = [(number_of_class[a], number_of_class[b]) for a, b in zip(true, predicted, strict=True)]
    yield heat_map(
        "confusion/classes",
        pairs,
        size=len(number_of_class),
        borders=tuple(borders),
        axes=("class", "predicted class"),
    )
    answered = []
    for task_of_image, cls in zip(true_tasks, predicted, strict=True):
        # a class of several tasks is no confusion of tasks where the image's own one has it
        is_own = (task_of_image, cls) in brought
        answered.append(task_of_image if is_own else first_task[cls])
    others = [("confusion/tasks", "task of the predicted class", answered)]
    # -1 stands for images of methods that retrieve nothing
    if (rows["retrieved"] >= 0).all():
        others.append(("retrieval", "retrieved task", rows["retrieved"].tolist()))
    for name, axis, columns in others:
        yield heat_map(name, zip(true_tasks, columns, strict=True), size=task + 1, axes=("task", axis))


def _ended(event: RunEnded, directory: Path) -> Content:
    """Return the final metrics, and a table of tasks if the record is there."""
    final = {}
    for name, value in event.metrics.items():
        if _is_number(value):
            final[name] = float(value)
    rows = (*event.metrics.items(), ("seconds", event.seconds))
    tables = [LoggedTable(name="final", columns=("metric", "value"), rows=rows)]
    file = directory / "record.json"
    if file.exists():
        tables.append(_by_task(json.loads(file.read_text(encoding="utf-8"))))
    return Content(tables=tuple(tables), final=final)


def _by_task(record: Mapping[str, Any]) -> LoggedTable:
    """Return what became of each task: its set, its accuracy when it was learned and in the end."""
    rows = []
    retrieval = record["retrieval_matrix"]
    by_task = zip(record["decisions"], record["accuracy_matrix"], strict=True)
    for task, (decision, accuracy) in enumerate(by_task):
        retrieved = None
        if retrieval is not None:
            retrieved = retrieval[task][-1]
        # accuracy[t] is that of the task after task t: on the diagonal it has just been learned
        rows.append(
            (task + 1, decision["decision"], f"#{decision['set']}", accuracy[task], accuracy[-1], retrieved)
        )
    columns = ("task", "decision", "set", "accuracy when learned", "final accuracy", "final retrieval")
    return LoggedTable(name="tasks", columns=columns, rows=tuple(rows))


def _is_number(value: object) -> bool:
    # to Python, True is an int
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)
