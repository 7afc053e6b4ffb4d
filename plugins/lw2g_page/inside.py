"""Numbers from inside one run: matrices, confusions, decisions, drift. Tasks count from 1 here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from lw2g.disk.sealed import sha256_of
from lw2g.maths.metrics import owning_sets, owning_tasks
from lw2g.results.found_runs import ReportedRun
from lw2g.results.recomputed import Columns, read_columns
from lw2g.results.recorded_evidence import MeasureRow, measured
from lw2g.results.row_notes import by_domain
from lw2g_page.numbers import Numbers, Value

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
_RIGHT = "right"
_UNMEASURED = "this policy measured nothing before it decided"


@attrs.frozen(kw_only=True, eq=False)
class Inside:
    """A run with its last predictions.

    Attributes:
        run: The run; it has a record.
        label: Its name.
        predicted: Columns of its last evaluation; None if they cannot be used.
        why: Why they cannot be used.
        grows: Whether a policy decides on the sets of its method.
    """

    run: ReportedRun
    label: str
    predicted: Columns | None
    why: str
    grows: bool = True

    @property
    def record(self) -> Mapping[str, Any]:
        """The run's record."""
        return self.run.record


def look_inside(run: ReportedRun, label: str) -> Inside:
    """Return a run with the predictions that its record lists."""
    if run.answers is not None:  # of a pack, which was checked when it was opened
        return Inside(run=run, label=label, predicted=run.answers, why="")
    files = run.record.get("files", {})
    newest = ""
    for name in files:
        if name.startswith("predictions/"):
            newest = max(newest, name)  # their numbers have leading zeros
    if not newest or not (run.path / newest).is_file():
        return Inside(run=run, label=label, predicted=None, why="the run's predictions are not there")
    if sha256_of(run.path / newest) != files[newest]:
        why = f"{newest} is not the file that the record lists"
        return Inside(run=run, label=label, predicted=None, why=why)
    columns = read_columns(run.path / newest)
    largest = max(int(columns[name].max()) for name in ("true", "predicted"))
    if largest >= len(run.record["class_names"]):
        why = f"{newest} has class {largest}, which has no name"
        return Inside(run=run, label=label, predicted=None, why=why)
    return Inside(run=run, label=label, predicted=columns, why="")


def accuracies(inside: Inside) -> Numbers:
    """Return A[i, t]: task, after which task, accuracy in percent; of a stream of domains the final ones."""
    domains = by_domain([inside.record])
    facts = [domains] if domains else []
    return Numbers(rows=_triangle(inside.record["accuracy_matrix"]), facts=facts)


def _triangle(matrix: Sequence[Sequence[float | None]]) -> list[Sequence[Value]]:
    cells: list[Sequence[Value]] = []
    for task, row in enumerate(matrix):
        for after, value in enumerate(row):
            if value is not None:
                cells.append((task + 1, after + 1, value))
    return cells


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
        best = max(reached[:-1])  # as FFM has it, which is the mean: without the last evaluation
        rows.append((task + 1, reached[0], best, reached[-1], best - reached[-1]))
    if not rows:
        return Numbers(why="a single task cannot be forgotten")
    mean_of_all = inside.run.metric("ffm")
    facts = []
    if mean_of_all is not None:
        below = ", below 0: a gain" if mean_of_all < 0 else ""
        facts.append(f"FFM {mean_of_all:z.2f}, the mean of best minus last{below}")
    return Numbers(rows=rows, facts=facts)


# -- confusions ------------------------------------------------------------------------------------------


def classes(inside: Inside) -> Numbers:
    """Return true against predicted classes: number and name of both, kind, images, percent."""
    if inside.predicted is None:
        return Numbers(why=inside.why)
    true = inside.predicted["true"]
    predicted = inside.predicted["predicted"]
    task = inside.predicted["task"]
    size = max(int(true.max()), int(predicted.max())) + 1
    has = _classes_of_tasks(true, task, size, inside.record.get("task_classes", ()))

    num_right = int(np.sum(true == predicted))
    facts = [f"{100 * num_right / len(true):.1f} % right"]
    in_own_task = has[task, predicted]
    may_be_of_another = not has.all()  # where each task has all classes, no class is of a wrong task
    if may_be_of_another:
        num_near = int(np.sum(in_own_task)) - num_right
        num_far = len(true) - num_right - num_near
        facts += [
            f"{100 * num_near / len(true):.1f} % another class of the right task",
            f"{100 * num_far / len(true):.1f} % a wrong task",
        ]

    # a cell is a pair of classes, numbered true * size + predicted
    cell_of = true * size + predicted
    counts = np.bincount(cell_of, minlength=size * size)
    near = np.bincount(cell_of, weights=in_own_task, minlength=size * size)
    images = np.bincount(true, minlength=size)
    cells = sorted(map(int, np.flatnonzero(counts)), key=lambda cell: -counts[cell])
    if len(cells) > _CELLS:
        facts.append(f"the {_CELLS} fullest of {len(cells)} cells")
    names = inside.record["class_names"]
    rows: list[Sequence[Value]] = []
    for cell in cells[:_CELLS]:
        true_class, predicted_class = divmod(cell, size)
        if true_class == predicted_class:
            kind = _RIGHT
        elif not may_be_of_another:
            kind = "wrong class"
        elif 2 * near[cell] > counts[cell]:  # of classes that come again most images decide
            kind = "wrong class, right task"
        else:
            kind = "wrong task"
        percent = float(100 * counts[cell] / images[true_class])
        classes_and_names = (true_class, names[true_class], predicted_class, names[predicted_class])
        rows.append((*classes_and_names, kind, int(counts[cell]), percent))
    rows.sort(key=lambda row: row[4] == _RIGHT)  # the table starts with the mistakes

    # lines of the drawing stand where the first task of classes changes
    starts = [{"at": int(at)} for at in np.flatnonzero(np.diff(has.argmax(axis=0))) + 1]
    return Numbers(rows=rows, facts=facts, extra={"blocks": starts, "size": [{"at": size}]})


def _classes_of_tasks(
    true: npt.NDArray[np.int32], task: npt.NDArray[np.int32], size: int, recorded: Sequence[Sequence[int]]
) -> npt.NDArray[np.bool_]:
    """Return which of ``size`` classes each task has, ``[T, size]``: from its images and its record."""
    has = np.zeros((1 + int(task.max()), size), dtype=bool)
    has[task, true] = True
    for index, classes_of_task in enumerate(recorded[: len(has)]):
        for target in classes_of_task:
            if target < size:  # a class without test images may lie beyond those that occur
                has[index, target] = True
    return has


def owned(columns: Columns, record: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Return which test samples get a set that holds one of their tasks, ``[N]``."""
    task_to_set = record["task_to_set"]
    num_tasks = len(task_to_set)
    task = columns["task"]
    true = columns["true"]
    classes_of_tasks = record.get("task_classes")
    if not classes_of_tasks:  # older records: a class is of the tasks whose images have it
        classes_of_tasks = [np.unique(true[task == index]).tolist() for index in range(num_tasks)]
    domains = record.get("domains") or [""] * num_tasks
    rows, tasks = owning_tasks(task, true, classes_of_tasks[:num_tasks], domains)
    right: npt.NDArray[np.bool_] = owning_sets(tasks, task_to_set)[rows, columns["set"]]
    return right


def retrieval(inside: Inside) -> Numbers:
    """Return true against retrieved tasks: task, retrieved, own set, images, share in percent."""
    if inside.predicted is None:
        return Numbers(why=inside.why)
    task = inside.predicted["task"]
    retrieved = inside.predicted["retrieved"]
    if (retrieved < 0).any():
        return Numbers(why="this run makes no hard choice of a set")
    size = max(int(task.max()), int(retrieved.max())) + 1
    counts = np.bincount(task * size + retrieved, minlength=size * size).reshape(size, size)
    shares = 100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    task_to_set = inside.record["task_to_set"]
    right = np.zeros_like(counts)
    # not +=, which counts a cell once however many samples fall into it
    np.add.at(right, (task, retrieved), owned(inside.predicted, inside.record))

    rows: list[Sequence[Value]] = []
    for own in range(size):
        for other in range(size):
            count = int(counts[own, other])
            is_own_set = bool(task_to_set[own] == task_to_set[other])
            if count:  # classes that come again may be in several sets: what most images get decides
                is_own_set = bool(2 * right[own, other] > count)
            elif not is_own_set:
                continue
            rows.append((own + 1, other + 1, is_own_set, count, float(shares[own, other])))

    facts = []
    titles = {"pra": "PRA", "chance_pra": "chance", "coverage_3": "own set among the first three"}
    for name, title in titles.items():
        value = inside.run.metric(name)
        if value is not None:
            facts.append(f"{title} {value:.1f} %")
    return Numbers(rows=rows, facts=facts)


# -- growth ----------------------------------------------------------------------------------------------


def flow(inside: Inside) -> Numbers:
    """Return which set each task got: task, decision, set, tasks of that set, classes."""
    entries = inside.record.get("decisions", [])
    task_to_set = inside.record.get("task_to_set", [])
    if not entries or inside.run.metric("ssp") is None:
        return Numbers(why="this run keeps no parameter sets")
    if not inside.grows:
        return Numbers(why="no policy decides on the sets of this method")

    # in the drawing, sets share the height of the tasks evenly; half a step leads to the middle of a share
    num_sets = len(set(task_to_set))
    heights = {}
    labels = []
    for number, set_id in enumerate(sorted(set(task_to_set))):
        heights[set_id] = (number + 0.5) * len(task_to_set) / num_sets
        labels.append({"label": f"#{set_id} · {task_to_set.count(set_id)}", "y": heights[set_id]})

    classes_of_tasks = inside.record.get("task_classes", [])
    rows: list[Sequence[Value]] = []
    paths = []
    for entry in entries[: len(task_to_set)]:
        task = entry["task"]
        decision = entry["decision"]
        chosen = entry["set"]
        names = ""
        if task < len(classes_of_tasks):  # older records note no classes
            names = _first_names(classes_of_tasks[task], inside.record["class_names"])
        rows.append((task + 1, decision, f"#{chosen}", task_to_set.count(chosen), names))
        # a line from the task to its set: level, then across, then level again
        for x, y in (
            (0.0, task + 0.5),
            (0.35, task + 0.5),
            (0.65, heights[chosen]),
            (1.0, heights[chosen]),
        ):
            paths.append({"task": task + 1, "decision": decision, "x": x, "y": y})

    num_grown = sum(entry["decision"] == "grow" for entry in entries)
    facts = [
        f"tasks: {len(task_to_set)}",
        f"sets: {num_sets}",
        f"grown: {num_grown}",
        f"reused: {len(entries) - num_grown}",
    ]
    return Numbers(rows=rows, facts=facts, extra={"paths": paths, "sets": labels})


def _first_names(targets: Sequence[int], class_names: Sequence[str]) -> str:
    """Return the names of a task's first four classes, and how many more it has."""
    text = ", ".join(class_names[target] for target in targets[:4])
    if len(targets) > 4:
        text += f" and {len(targets) - 4} more"
    return text


def decisions(inside: Inside) -> Numbers:
    """Return all evidence: a row per measure and candidate, in the order of the figure's fields."""
    entries = {entry["task"]: entry for entry in inside.record.get("decisions", ())}
    rows: list[Sequence[Value]] = []
    for measure in measured(inside.record):
        if measure.value is None and not measure.excluded:
            continue
        low = high = None
        if measure.value is not None:
            half = measure.error or 0.0
            low = measure.value - half
            high = measure.value + half
        difference = error_of_difference = None
        if measure.apart is not None:
            _, difference, error_of_difference = measure.apart
        entry = entries[measure.task]
        outcome = entry["decision"]
        if outcome != "grow":
            outcome += f" #{entry['set']}"
        if entry.get("held"):
            outcome += " as it is"
        confidence = entry.get("confidence")
        if confidence is not None:
            confidence = 100 * confidence
        rows.append(
            (
                measure.task + 1,
                measure.set,
                measure.name,
                measure.value,
                measure.error,
                low,
                high,
                measure.threshold,
                difference,
                error_of_difference,
                outcome,
                confidence,
                _fate(measure),
                measure.excluded,
            )
        )
    if not rows:
        return Numbers(why=_UNMEASURED)
    return Numbers(rows=rows)


def _fate(measure: MeasureRow) -> str:
    """Return what became of the candidate of a measure."""
    if measure.reused:
        return "reused"
    if measure.excluded:
        return "excluded"
    return "not taken"


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
            without_unit = measure.name.partition(" (")[0]
            above[f"{without_unit} above {kind}"].append(measure.value > (null or 0.0))
    if not rows:
        return Numbers(why=_UNMEASURED)
    facts = [f"{text} in {sum(answers)} of {len(answers)}" for text, answers in above.items()]
    return Numbers(rows=rows, facts=facts)


def drift(inside: Inside) -> Numbers:
    """Return the drift of old tasks' features: task, after which task, change in percent."""
    rows: list[Sequence[Value]] = []
    for after, column in enumerate(inside.record.get("feature_drift") or []):
        for task, value in enumerate(column):
            if value is not None:
                rows.append((task + 1, after + 1, 100 * value))
    if not rows:
        return Numbers(why="there was no old task whose features could drift")
    if not any(row[2] for row in rows):
        return Numbers(
            why="no feature of an old task drifted: its set and all shared parameters stayed unchanged"
        )
    return Numbers(rows=rows)


def motions(inside: Inside) -> Numbers:
    """Return how far each task moved classes, a row for its own and one for old ones.

    The columns: task (from 1), whose, mean distance that class means moved in feature space, that of its own
    classes in medians of earlier tasks, old classes that were held back, old classes that were carried along.
    """
    entries = (inside.record.get("findings") or {}).get("motions", ())
    if not entries:
        return Numbers(why="no statistics of old classes were carried")
    rows: list[Sequence[Value]] = []
    alarming = []
    num_held = 0
    for entry in entries:
        task = entry["task"] + 1
        of_both = (len(entry["held"]), entry["carried"])
        rows.append((task, "its own", entry["new"], entry["times"], *of_both))
        # the ratio is that of a task's own classes
        rows.append((task, "old ones", entry["old"], None, *of_both))
        if entry["alarming"]:
            alarming.append(str(task))
        num_held += len(entry["held"])
    facts = []
    if alarming:
        tasks = ", ".join(alarming)
        # ALARMING of lw2g.blocks.motions, in words: that module imports torch
        facts.append(f"task {tasks}: its own classes moved three times the median of earlier tasks, or more")
    if num_held:
        facts.append(f"old classes were held {num_held} times in all")
    return Numbers(rows=rows, facts=facts)
