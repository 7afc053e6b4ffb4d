"""``lw2g show``: what a run decided and reached, from its record alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lw2g.cli.output import console, number, print_metrics, print_summary, table
from lw2g.config.directory import CONFIG, RECORD, SUMMARY, missing_run
from lw2g.errors import DataError
from lw2g.training.files import contents

__all__ = ["show"]

Record = Mapping[str, Any]


@click.command(short_help="Show decisions, matrices and metrics of a run.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the record as it is stored.")
@click.option("--explain", is_flag=True, help="Say what each number means.")
def show(run: Path, as_json: bool, explain: bool) -> None:
    """Show the run in the directory RUN: decisions with their evidence, matrices, metrics, costs.

    Tasks count from 1; sets are shown by their ids (#0 is the first); percentages are 0 to 100.
    """
    path, kind = _told_by(run)
    try:
        whole = path == run / RECORD  # with a configuration beside it
        record = contents.read_record(run) if whole else contents.read_sealed(path, kind)
    except DataError as error:
        remedy = "" if "lw2g resume" in str(error) else f"; write it anew: lw2g resume {path.parent}"
        raise DataError(f"{error}{remedy}") from error
    if as_json:
        click.echo(path.read_text(encoding="utf-8"), nl=False)
        return
    from lw2g.metrics import DEFINITIONS  # with numpy, which completion does not wait for

    terms = DEFINITIONS
    if kind is contents.Summary:
        print_summary(record)
    else:
        _print_record(record)
        terms = {**_DECISION_COLUMNS, **_PART_MEANINGS, **DEFINITIONS, **_COSTS}
    if explain:
        _print_definitions(terms)


def _told_by(run: Path) -> tuple[Path, type[Any]]:
    """Return the file that tells of a run, or of several seeds, and what it holds."""
    if run.is_file():
        return run, contents.Summary if run.name == SUMMARY else contents.Record
    for name, kind in ((RECORD, contents.Record), (SUMMARY, contents.Summary)):
        if (run / name).exists():
            return run / name, kind
    if (run / CONFIG).exists():
        raise DataError(f"the run {str(run)!r} has finished no task yet; go on with it: lw2g resume {run}")
    raise missing_run(run)


def _print_record(record: Record) -> None:
    out = console()
    out.print(_headline(record))
    out.print(
        table(
            "decisions",
            tuple(_DECISION_COLUMNS),
            [row for entry in record["decisions"] for row in _decision(entry)],
            left=2,
        )
    )
    if parts := list(_parts(record)):
        out.print(table("further numbers", ("task", "candidate", "measure", "numbers"), parts, left=4))
    for key, title in (("accuracy_matrix", "accuracy by task"), ("retrieval_matrix", "retrieval by task")):
        if record.get(key):
            out.print(_matrix(record[key], f"{title} (percent)"))
    drift = record.get("feature_drift")
    if drift and any(drift):
        out.print(_matrix(_by_task(drift), "feature drift by task (percent)"))
    carried = "carry_forwards" in record.get("findings", {})
    if stale := record.get("stale_classes", {}).get("last"):
        out.print(
            f"{100 * stale:.0f} % of the classes are stale: their features may have moved since statistics "
            "of them were taken" + ("; the head carries its own along" if carried else "")
        )
    print_metrics(record)
    out.print(table("costs", ("part", "value"), _costs(record)))
    _print_deviations(record["deviations"])


def _by_task(drift: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Turn entries by evaluation into rows by task, in percent, as matrices of accuracies are."""
    found: list[list[float | None]] = [[None] * len(drift) for _ in drift[1:]]
    for after, column in enumerate(drift):
        for task, value in enumerate(column):
            found[task][after] = None if value is None else 100 * value
    return found


_COSTS = {
    "evidence (s)": "seconds in which growth was decided",
    "training (s)": "seconds in the phases of baseline and retrieval",
    "subspace (s)": "seconds in which spaces were built and rules gathered",
    "evaluation (s)": "seconds in which test samples were predicted",
    "total (s)": "seconds from start to end, all of the above and checkpoints included",
    "training images/s": "training images stepped on in a second of training",
    "passes per test image": "forwards through a set that a test image takes, beside the query's",
    "ms per test image": "milliseconds that these took in the last evaluation, in batches",
    "training_per_image": "floating point operations of a training step on one image",
    "inference_per_image": "floating point operations of predicting one image, retrieval included",
    "prompt_vectors": "vectors of the backbone's width that all sets hold",
    "basis_vectors": "basis vectors of all spaces that are kept to protect old tasks",
    "parameters": "numbers that were added to the frozen backbone",
    "statistics": "numbers kept beside them from task to task: means, covariances, Gram matrices, bases",
}


def _costs(record: Record) -> Iterator[tuple[str, str]]:
    for name, value in record["seconds"].items():
        if name != "per_test_image":
            yield f"{name} (s)", number(value)
    if routing := record.get("routing"):
        yield "passes per test image", str(routing["passes_per_image"])
        yield "ms per test image", number(1e3 * record["seconds"].get("per_test_image", 0.0))
    yield "training images/s", number(record.get("images_per_second"), 1)
    for name, value in record.get("flops", {}).items():
        yield name, "-" if value is None else f"{value / 1e6:,.1f} MFLOP"
    for name, value in record["storage"].items():
        yield name, number(value)


def _headline(record: Record) -> str:
    config = record["config"]
    constraints = " + ".join(config["constraints"]) or "none"
    retrieval = (config.get("retrieval") or {}).get("name", "none")
    changed = [entry["option"] for entry in record["protocol_changes"]]
    protocol = record["protocol"] + (f" (changed: {', '.join(changed)})" if changed else "")
    return (
        f"{config['baseline']['name']} x {config['policy']['name']} x {constraints} on "
        f"{config['benchmark']['name']}, backbone {config['backbone']['name']}, retrieval {retrieval}, "
        f"seed {record['seed']}, lw2g {record['lw2g_version']}\nprotocol {protocol}\n"
        f"{_origin(record.get('origin'))}"
    )


def _origin(origin: Record | None) -> str:
    """Say which run a fork began with, and what was changed."""
    if origin is None:
        return ""
    changed = [f"{one['option']} {one['before']} -> {one['after']}" for one in origin["changed"]]
    return (
        f"forked from {origin['run']} after task {origin['task'] + 1}; "
        f"changed: {', '.join(changed) or 'nothing'}\n"
    )


_DECISION_COLUMNS = {
    "task": "counts from 1",
    "decision": "grow: a new set was added; reuse: the task trains an old one",
    "set": "the set the task got (#0 is the first)",
    "sure": "how probable it is, by the error, that growing or not would be decided alike without it",
    "candidate": "a set that was measured for the task",
    "measure": "what was measured; `lw2g plugins NAME` tells what it is",
    "value": "the measure, in its unit",
    "error": "its standard error over images and draws; images add nothing where all were measured",
    "null": "what chance would give, such as a random space of the same rank",
    "own": "what the set's own tasks give, on images that it has not seen",
    "alike": "+: a large value means that the task is like the set's; -: that it is unlike",
    "n": "images it was computed from",
    "rank": "dimensions of the old space over all sites",
    "excluded": "why a set is no candidate, or a measure undefined",
}
_DECIDED = 4
"""Columns that say what was decided; the others are of a candidate."""
_ALIKE = 3
"""Sets without a measure that get a row each; more of one kind share one."""
_COLUMNS = 20
"""Columns of a matrix at most."""

_PART_MEANINGS = {
    "hfc": "hindrance: angle in degrees between the task's gradient and its part outside the set's old "
    "space; 0 if the gradient is orthogonal to it, 90 if it lies in it",
    "hfc_pre": "the same against the space of the task's own pre-trained activations; Z is their difference",
    "null_hfc": "HFC that a random space of the same rank would give",
    "energy_null_hfc": "HFC that a random combination of the task's activations would give",
    "above #N": "how far the value lies above that of the reused set (after growth: of the least one), and "
    "the standard error of that difference: most of the error of one value is common to all sets",
}


def _decision(entry: Record) -> Iterator[tuple[str, ...]]:
    """Yield a row per candidate and measure; only the first one repeats the task and what was decided."""
    sure = entry.get("confidence")
    head: tuple[str, ...] = (
        str(entry["task"] + 1),
        str(entry["decision"]),
        _set(entry["set"]),
        "-" if sure is None else f"{sure:.0%}",
    )
    several, others = _grouped(entry["candidates"])
    rows = [row for one in several for row in _candidate(one)]
    rows += [
        (f"{count} others", *("-",) * (len(_DECISION_COLUMNS) - _DECIDED - 2), reason)
        for reason, count in others.items()
    ]
    for row in rows or _candidate({}):
        yield (*head, *row)
        head = ("",) * _DECIDED


def _grouped(candidates: Sequence[Record]) -> tuple[list[Record], dict[str, int]]:
    """Return the candidates that get rows, and how many others there are by why nothing was measured.

    Of a long stream most sets are none of interest: full, or screened out.
    """
    reasons = Counter(_reason(one) for one in candidates if not one.get("measures"))
    others = {reason: count for reason, count in reasons.items() if count > _ALIKE}
    alone = [one for one in candidates if one.get("measures") or _reason(one) not in others]
    return alone, others


def _reason(candidate: Record) -> str:
    """Return why a set was not measured, without its own numbers."""
    return str(candidate.get("excluded") or "").partition(":")[0]


def _candidate(candidate: Record) -> Iterator[tuple[str, ...]]:
    """Yield a row per measure of a candidate; one where there are none."""
    rank = candidate.get("rank")
    last = ("-" if rank is None else str(rank),)
    excluded = candidate.get("excluded") or ""
    name = _set(candidate.get("set"))
    measures = candidate.get("measures", {})
    if not measures:
        yield (name, *("-",) * 7, *last, excluded)
    for measure, said in measures.items():
        signs = {1: "+", -1: "-"}
        numbers = (_digits(said[key]) for key in ("value", "error", "null", "own"))
        yield (
            name,
            measure,
            *numbers,
            signs[said["alike"]],
            str(said["n"]),
            *last,
            excluded or said["why"] or "",
        )
        name, last, excluded = "", ("",), ""


def _parts(record: Record) -> Iterator[tuple[str, ...]]:
    """Yield the further numbers of all measures: one row per task, candidate and measure."""
    from lw2g.report.page.evidence import apart  # with numpy

    for entry in record["decisions"]:
        differences = apart(entry)
        for candidate in entry["candidates"]:
            for measure, said in candidate.get("measures", {}).items():
                values = [f"{name} {_digits(value)}" for name, value in said["parts"].items()]
                if found := differences.get((candidate["set"], measure)):
                    other, difference, error = found
                    values.append(f"above #{other} {_digits(difference)} ± {_digits(error)}")
                if values:
                    yield str(entry["task"] + 1), _set(candidate["set"]), measure, ", ".join(values)


def _digits(value: float | None) -> str:
    """Return a value of whatever unit: three digits, or to the hundredth where it is large."""
    return number(value) if value is None or abs(value) >= 10 else f"{value:.3g}"


def _set(set_id: int | None) -> str:
    return "-" if set_id is None else f"#{set_id}"


def _matrix(matrix: Sequence[Sequence[float | None]], title: str) -> Any:
    """Draw ``A[i][t]``: row = task, column = after which task; of a long stream some of both."""
    tasks = len(matrix[0])
    step = -(-tasks // _COLUMNS)
    shown = [task for task in range(tasks) if (tasks - 1 - task) % step == 0]
    columns = ("task", *(f"after {after + 1}" for after in shown))
    rows = [(task, [matrix[task][after] for after in shown]) for task in shown if task < len(matrix)]
    told = [(str(task + 1), *("" if value is None else number(value) for value in row)) for task, row in rows]
    return table(title if step == 1 else f"{title}, one task in {step} (--json: all)", columns, told)


def _print_definitions(definitions: Mapping[str, str]) -> None:
    console().print(table("definitions", ("number", "meaning"), definitions.items(), left=2))


def _print_deviations(deviations: Sequence[Record]) -> None:
    if not deviations:
        console().print("no deviations from the published method")
        return
    rows = [
        (entry["option"], _value(entry["value"]), _value(entry.get("published")), entry.get("note", ""))
        for entry in deviations
    ]
    console().print(
        table("deviations from the published method", ("option", "value", "published", "note"), rows, left=4)
    )


def _value(value: Any) -> str:
    return "-" if value is None else json.dumps(value) if isinstance(value, list | dict) else str(value)
