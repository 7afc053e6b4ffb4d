"""Events as named scalars: what the trackers of this plugin have in common."""

from __future__ import annotations

from collections.abc import Iterator

from lw2g.interfaces.tracker import EpochEnded, Event, TaskDecided, TaskEvaluated

__all__ = ["scalars"]


def scalars(event: Event) -> Iterator[tuple[str, float, int]]:
    """Yield ``(name, value, step)`` for everything in an event that can be drawn; tasks count from 0.

    >>> event = TaskEvaluated(task=1, accuracy=(90.0, 80.0), retrieval=None, metrics={"faa": 85.0})
    >>> list(scalars(event))
    [('accuracy/task-0', 90.0, 1), ('accuracy/task-1', 80.0, 1), ('metrics/faa', 85.0, 1)]
    """
    match event:
        case EpochEnded():
            step = event.task * event.epochs + event.epoch
            yield f"{event.phase}/loss", event.loss, step
            yield f"{event.phase}/lr", event.lr, step
            yield f"{event.phase}/images_per_second", event.images_per_second, step
        case TaskDecided():
            for candidate in event.decision.get("candidates", ()):
                for name, measured in candidate["measures"].items():
                    numbers = {name: measured["value"], **measured["parts"]}
                    for key, value in numbers.items():
                        if value is not None:
                            yield f"evidence/{key}/set-{candidate['set']}", value, event.task
        case TaskEvaluated():
            for kind, values in (("accuracy", event.accuracy), ("retrieval", event.retrieval or ())):
                for task, value in enumerate(values):
                    yield f"{kind}/task-{task}", value, event.task
            for name, value in event.metrics.items():
                if value is not None:
                    yield f"metrics/{name}", float(value), event.task
