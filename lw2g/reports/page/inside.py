"""Numbers from inside one run: matrices, confusions, decisions, drift. Tasks count from 1 here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from lw2g.files.sealed import sha256_of
from lw2g.metrics import owning_sets, owning_tasks
from lw2g.reports.page.evidence import measured
from lw2g.reports.page.numbers import Numbers, Value
from lw2g.reports.runs import ReportedRun
from lw2g.results.recomputed import Columns, read_columns

__all__ = [
    "Inside",
    "accuracies",
    "classes",
    "decisions",
    "drift",
    "flow",
    "forgetting",
    "look_inside",
    "motions",
    "nulls",
    "owned",
    "retrieval",
]

_CELLS = 4000
"""The largest number of cells of a class confusion; those with most images are kept."""
_UNMEASURED = "this policy measured nothing before it decided"


@attrs.frozen(kw_only=True, eq=False)
class Inside:
    """A run with its last predictions.

    Attributes:
        run: The run; it has a record.
        label: Its name.
        predicted: Columns of its last evaluation; None if they cannot be used.
        why: Why they cannot be used.
    """

    run: ReportedRun
    label: str
    predicted: Columns | None
    why: str

    @property
    def record(self) -> Mapping[str, Any]:
        """The run's record."""
        return self.run.record


def look_inside(run: ReportedRun, label: str) -> Inside:
    """Return a run with the predictions that its record lists."""
    files = run.record.get("files", {})
    name = max((name for name in files if name.startswith("predictions/")), default="")
    path = run.path / name
    columns, why = None, ""
    if not name or not path.is_file():
        why = "the run's predictions are not there"
    elif sha256_of(path) != files[name]:
        why = f"{name} is not the file that the record lists"
    else:
        columns = read_columns(path)
    return Inside(run=run, label=label, predicted=columns, why=why)


def accuracies(inside: Inside) -> Numbers:
    """Return A[i, t]: task, after which task, accuracy in percent."""
    return Numbers(rows=_triangle(inside.record["accuracy_matrix"]))


def _triangle(matrix: Sequence[Sequence[float | None]]) -> list[Sequence[Value]]:
    return [
        (task + 1, after + 1, value)
        for task, row in enumerate(matrix)
        for after, value in enumerate(row)
        if value is not None
    ]


def forgetting(inside: Inside) -> Numbers:
    """Return forgetting of each task but the last: task, learned, best, final, forgotten, in percent."""
    matrix = inside.record["accuracy_matrix"]
    rows: list[Sequence[Value]] = []
    for task in range(len(matrix)):
        if all(row[task] is None for row in matrix):
            return Numbers(why="nothing was measured after some tasks (run.evaluate)")
    for task, row in enumerate(matrix[:-1]):
        reached = [value for value in row if value is not None]
        if not reached:  # no test images of its own
            continue
        rows.append((task + 1, reached[0], max(reached), reached[-1], max(reached) - reached[-1]))
    metrics = inside.record.get("metrics", {})
    values = [(name.upper(), metrics.get(name)) for name in ("ffm", "bwt")]
    return Numbers(
        rows=rows,
        facts=[f"{name} {value:z.2f}" for name, value in values if value is not None and rows],
        why="" if rows else "a single task cannot be forgotten",
    )


# -- confusions ------------------------------------------------------------------------------------------


def classes(inside: Inside) -> Numbers:
    """Return true against predicted classes: number and name of both, kind, images, percent."""
    if inside.predicted is None:
        return Numbers(why=inside.why)
    true, predicted, task = (inside.predicted[name] for name in ("true", "predicted", "task"))
    names = inside.record["class_names"]
    size = max(int(true.max()), int(predicted.max())) + 1
    has = np.zeros((1 + int(task.max()), size), dtype=bool)  # which classes a task has
    has[task, true] = True
    for index, own in enumerate(inside.record.get("task_classes", ())[: len(has)]):
        has[index, [target for target in own if target < size]] = True
    task_of, together = has.argmax(axis=0), has.T @ has
    counts = np.bincount(true * size + predicted, minlength=size * size)
    images = np.bincount(true, minlength=size)
    right = int(np.sum(true == predicted))
    inner = int(np.sum(has[task, predicted])) - right
    parts = (right, inner, len(true) - right - inner)
    outcomes = ("right", "another class of the right task", "a wrong task")
    facts = [f"{100 * part / len(true):.1f} % {text}" for part, text in zip(parts, outcomes, strict=True)]
    cells = sorted(map(int, np.flatnonzero(counts)), key=lambda cell: -counts[cell])
    rows: list[Sequence[Value]] = []
    for cell in cells[:_CELLS]:
        true_class, other = divmod(cell, size)
        alike = together[true_class, other]
        kind = "right" if true_class == other else "wrong class, right task" if alike else "wrong task"
        share = 100 * counts[cell] / images[true_class]
        rows.append(
            (true_class, names[true_class], other, names[other], kind, int(counts[cell]), float(share))
        )
    if len(cells) > _CELLS:
        facts.append(f"the {_CELLS} fullest of {len(cells)} cells")
    starts = [{"at": int(at)} for at in np.flatnonzero(np.diff(task_of)) + 1]
    rows.sort(key=lambda row: row[4] == "right")  # the table starts with the mistakes
    return Numbers(rows=rows, facts=facts, extra={"blocks": starts, "size": [{"at": size}]})


def owned(columns: Columns, record: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Return which test samples get a set that holds one of their tasks, ``[N]``."""
    held, task, true = record["task_to_set"], columns["task"], columns["true"]
    classes = record.get("task_classes") or [
        np.unique(true[task == index]).tolist() for index in range(len(held))
    ]
    domains = record.get("domains") or [""] * len(held)
    rows, tasks = owning_tasks(task, true, classes[: len(held)], domains)
    right: npt.NDArray[np.bool_] = owning_sets(tasks, held)[rows, columns["set"]]
    return right


def retrieval(inside: Inside) -> Numbers:
    """Return true against retrieved tasks: task, retrieved, own set, images, share in percent."""
    if inside.predicted is None:
        return Numbers(why=inside.why)
    task, retrieved = (inside.predicted[name] for name in ("task", "retrieved"))
    if (retrieved < 0).any():
        return Numbers(why="this run makes no hard choice of a set")
    size = max(int(task.max()), int(retrieved.max())) + 1
    counts = np.bincount(task * size + retrieved, minlength=size * size).reshape(size, size)
    shares = 100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    held = inside.record["task_to_set"]
    right = np.zeros_like(counts)
    np.add.at(right, (task, retrieved), owned(inside.predicted, inside.record))

    def same(own: int, other: int) -> bool:  # of a cell with images: whether most get a set that owns them
        if counts[own, other]:
            return bool(2 * right[own, other] > counts[own, other])
        return bool(held[own] == held[other])

    rows: list[Sequence[Value]] = [
        (own + 1, other + 1, same(own, other), int(counts[own, other]), float(shares[own, other]))
        for own in range(size)
        for other in range(size)
        if counts[own, other] or held[own] == held[other]
    ]
    metrics = inside.record.get("metrics", {})
    titles = (("PRA", "pra"), ("chance", "chance_pra"), ("own set among the first three", "coverage_3"))
    facts = [f"{text} {metrics[name]:.1f} %" for text, name in titles if metrics.get(name) is not None]
    return Numbers(rows=rows, facts=facts)


# -- growth ----------------------------------------------------------------------------------------------


def flow(inside: Inside) -> Numbers:
    """Return which set each task got: task, decision, set, tasks of that set, classes."""
    entries = inside.record.get("decisions", [])
    held = inside.record.get("task_to_set", [])
    if not entries or inside.record.get("metrics", {}).get("ssp") is None:
        return Numbers(why="this run keeps no parameter sets")
    names = inside.record["class_names"]
    classes_of = inside.record.get("task_classes", [])
    rows: list[Sequence[Value]] = []
    paths = []
    sets = sorted(set(held))
    places = {set_id: (number + 0.5) * len(held) / len(sets) for number, set_id in enumerate(sets)}
    for entry in entries[: len(held)]:
        task, chosen = entry["task"], entry["set"]
        own = [names[target] for target in classes_of[task]] if task < len(classes_of) else []
        shown = ", ".join(own[:4]) + (f" and {len(own) - 4} more" if len(own) > 4 else "")
        rows.append((task + 1, entry["decision"], f"#{chosen}", held.count(chosen), shown))
        ends = ((0.0, task + 0.5), (0.35, task + 0.5), (0.65, places[chosen]), (1.0, places[chosen]))
        paths += [{"task": task + 1, "decision": entry["decision"], "x": x, "y": y} for x, y in ends]
    grown = sum(entry["decision"] == "grow" for entry in entries)
    labels = [{"label": f"#{set_id} · {held.count(set_id)}", "y": place} for set_id, place in places.items()]
    counts = {"tasks": len(held), "sets": len(sets), "grown": grown, "reused": len(entries) - grown}
    facts = [f"{name}: {number}" for name, number in counts.items()]
    return Numbers(rows=rows, facts=facts, extra={"paths": paths, "sets": labels})


def decisions(inside: Inside) -> Numbers:
    """Return all evidence: a row per measure and candidate, in the order of the figure's fields."""
    entries = {entry["task"]: entry for entry in inside.record.get("decisions", ())}
    rows: list[Sequence[Value]] = []
    for measure in measured(inside.record):
        if measure.value is None and not measure.excluded:
            continue
        half = measure.error or 0.0
        ends = (None, None) if measure.value is None else (measure.value - half, measure.value + half)
        entry = entries[measure.task]
        outcome = "grow" if entry["decision"] == "grow" else f"{entry['decision']} #{entry['set']}"
        kind = "reused" if measure.reused else "excluded" if measure.excluded else "not taken"
        values = (measure.name, measure.value, measure.error, *ends, measure.threshold)
        _, *difference = measure.apart or (None,) * 3
        sure = entry.get("confidence")
        decision = (outcome, None if sure is None else 100 * sure, kind, measure.excluded)
        rows.append((measure.task + 1, measure.set, *values, *difference, *decision))
    return Numbers(rows=rows, why="" if rows else _UNMEASURED)


def nulls(inside: Inside) -> Numbers:
    """Return measures beside their values by chance: task, candidate, measure, what, value."""
    rows: list[Sequence[Value]] = []
    above: dict[str, list[bool]] = defaultdict(list)
    for measure in measured(inside.record):
        if measure.value is None or not measure.nulls:
            continue
        rows.append((measure.task + 1, measure.set, measure.name, "measured", measure.value))
        for kind, null in measure.nulls.items():
            rows.append((measure.task + 1, measure.set, measure.name, kind, null))
            above[f"{measure.name.partition(' (')[0]} above {kind}"].append(measure.value > (null or 0.0))
    facts = [f"{text} in {sum(answers)} of {len(answers)}" for text, answers in above.items()]
    return Numbers(rows=rows, facts=facts, why="" if rows else _UNMEASURED)


def drift(inside: Inside) -> Numbers:
    """Return the drift of old tasks' features: task, after which task, change in percent."""
    columns = inside.record.get("feature_drift") or []
    rows: list[Sequence[Value]] = [
        (task + 1, after + 1, 100 * value)
        for after, column in enumerate(columns)
        for task, value in enumerate(column)
        if value is not None
    ]
    if not rows:
        return Numbers(why="there was no old task whose features could drift")
    still = "no feature of an old task drifted: its set and all shared parameters stayed unchanged"
    return Numbers(rows=rows, facts=[] if any(row[2] for row in rows) else [still])


def motions(inside: Inside) -> Numbers:
    """Return how far each task moved classes: task, whose, distance, times earlier tasks', held, carried."""
    entries = (inside.record.get("findings") or {}).get("motions", ())
    rows: list[Sequence[Value]] = []
    for entry in entries:
        rest = (entry["times"], len(entry["held"]), entry["carried"])
        rows.append((entry["task"] + 1, "its own", entry["new"], *rest))
        rows.append((entry["task"] + 1, "old ones", entry["old"], *rest))
    alarming = [str(entry["task"] + 1) for entry in entries if entry["alarming"]]
    far = f"task {', '.join(alarming)}: its own classes moved three times as far as earlier tasks', or more"
    held = sum(len(entry["held"]) for entry in entries)
    facts = [*([far] if alarming else []), *([f"old classes were held {held} times in all"] if held else [])]
    return Numbers(rows=rows, facts=facts, why="" if rows else "no statistics of old classes were carried")
