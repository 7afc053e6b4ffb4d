"""``lw2g show`` prints the decisions and results of a run, from its record alone, or what a model knows."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.api.recorded import (
    by_domain,
    head_taken,
    interval_of,
    leaked_images,
    manifest_of,
    part_of_policy,
    reached,
    results_of,
    word_of,
)
from lw2g.cli.decisions import DECISION_COLUMNS, PART_MEANINGS, decision_rows, digits, part_rows, rank_line
from lw2g.cli.paths import AnyPath
from lw2g.cli.shared_options import json_option
from lw2g.cli.shown_model import print_model
from lw2g.errors import DataError, as_word, counted
from lw2g.runtime.console import (
    console,
    in_words,
    listed,
    number,
    print_metrics,
    print_table,
    printable,
    table,
    tasks_of_accuracy,
)

if TYPE_CHECKING:
    from lw2g.api.recorded import Recorded

__all__ = ["show"]

Record = Mapping[str, Any]
_ROUNDING = 1e-9
"""Largest difference of two equal percentages."""


_EXAMPLES = "lw2g show model-2 --all\nlw2g show runs/first"
_WHAT = "Show what a run has recorded, or what a model knows."
_HOW = """Of a run, that is what it reached, in a few lines; with --all all of it. Tasks count from 1; sets
are shown by their ids (#0 is the first); percentages go from 0 to 100."""
_OF_A_MODEL = "Of a model that `lw2g start` or `lw2g export` has made: its classes, and what it has learned."


@click.command(help="\n\n".join([f"\b\n{_EXAMPLES}", _WHAT, _HOW, _OF_A_MODEL]))
@click.argument("run", metavar="RUN|MODEL", type=AnyPath(path_type=Path))
@json_option("Print the record, or of a model its description, as it is stored.")
@click.option(
    "--all",
    "whole_record",
    is_flag=True,
    help="Decisions, matrices, metrics, costs, deviations; of a model each class.",
)
@click.option("--explain", is_flag=True, help="Of a run: all that --all shows, and what each number means.")
def show(run: Path, as_json: bool, whole_record: bool, explain: bool) -> None:
    """Print a few lines, or tables of everything."""
    manifest = manifest_of(run)
    if manifest is not None:
        if explain:
            raise click.UsageError("--explain is of a run; of a model there is --all")
        if as_json:
            click.echo(json.dumps(attrs.asdict(manifest), indent=1))
        else:
            print_model(manifest, whole=whole_record)
        return
    results = results_of(run)
    warned = _warns_of_predictions(results)
    if as_json:
        click.echo(results.path.read_text(encoding="utf-8"), nl=False)
        return
    if not whole_record and not explain:
        _print_short(results, warned=warned)
        return
    _print_record(results)
    if explain:
        terms = _terms(results)
        print_table("definitions", ("number", "meaning"), terms.items(), left=2)


def _warns_of_predictions(results: Recorded) -> bool:
    """Warn of predictions that are not those of the record; return whether there are such."""
    try:
        results.require_whole_answers()
    except DataError as error:  # the record is whole, and is shown
        click.echo(f"warning: {printable(str(error))}", err=True)
        return True
    return False


def _print_short(results: Recorded, *, warned: bool) -> None:
    """Print what was run, what it reached, what it cost, and where the rest is.

    Args:
        results: The record.
        warned: Whether its predictions are others than it lists, and tell no interval.
    """
    record = results.content
    backbone = record["config"]["backbone"]["name"]
    lines = [f"{results.method} on {_stream(results)}, backbone {backbone}, seed {record['seed']}"]
    if results.unfinished:
        lines.append(results.unfinished)
    interval = "" if warned else interval_of({results.run: record})
    # as the run itself has printed them
    lines += in_words(reached({results.run: record}), record, grows=results.grows, interval=interval)
    if domains := by_domain([record]):
        lines.append(domains)
    course = _course(record["accuracy_matrix"])
    if course:
        lines.append(f"after each task: {course}")
    if leak := leaked_images([record]):
        lines.append(leak)
    if head := head_taken(record):
        lines.append(head)
    kept = sum(record["storage"].get(part, 0) for part in ("parameters", "statistics"))
    lines.append(f"{number(record['seconds']['total'], 0)} s; {kept:,} numbers kept beside the backbone")
    motions = record.get("findings", {}).get("motions", ())
    alarming = [str(entry["task"] + 1) for entry in motions if entry["alarming"]]
    if alarming:
        lines.append(f"tasks that moved features unusually far: {', '.join(alarming)}")
    if _errs_between_tasks(record):
        lines.append(_BETWEEN_TASKS)
    if by_rank := rank_line(results):
        lines.append(by_rank)
    count = len(record["deviations"])
    differ = (
        f"{counted(count, 'setting')} {'differs' if count == 1 else 'differ'}"
        if count
        else "no setting differs"
    )
    published = "the published method" if results.is_published else "what is published"
    published += part_of_policy(record)
    summary = f"{differ} from {published}; " if count or results.is_published else ""
    if word := word_of(record["config"]):
        summary = f"method: --{word}, of lw2g and published nowhere as a whole; "
    lines.append(f"{summary}all numbers: lw2g show {as_word(results.run)} --all")
    for line in lines:
        click.echo(printable(line))


def _stream(results: Recorded) -> str:
    """Return the benchmark, what its tasks consist of where not of new classes, and its changed options."""
    record = results.content
    benchmark = record["config"]["benchmark"]
    parts = [str(benchmark["name"])]
    stream = benchmark.get("stream", "classes")
    if stream != "classes":
        tasks = record.get("tasks", len(record["accuracy_matrix"]))  # older records do not note it
        parts.append(f"{tasks} tasks of {stream}")
    return ", ".join([*parts, *results.stream_options])


_BETWEEN_TASKS = "all errors are between tasks: no test image is taken for another class of its own task"
_BLOCKS = "▁▂▃▄▅▆▇█"


def _course(matrix: Sequence[Sequence[float | None]]) -> str:
    """Return the mean accuracy after each task as blocks, from 0 to 100 %, between the first and the last."""
    means = []
    for after in range(len(matrix)):
        column = [row[after] for row in matrix if after < len(row)]
        known = [value for value in column if value is not None]
        if known:
            means.append(sum(known) / len(known))
    if len(means) < 2:
        return ""
    blocks = []
    for mean in means:
        height = int(mean / 100 * len(_BLOCKS))
        blocks.append(_BLOCKS[min(height, len(_BLOCKS) - 1)])  # 100 % fills the last one
    return f"{number(means[0], 1)} {''.join(blocks)} {number(means[-1], 1)}"


def _print_record(results: Recorded) -> None:
    """Print all that a run has recorded, part by part."""
    record = results.content
    out = console()
    out.print(_headline(results), markup=False, soft_wrap=True)  # a name has brackets
    if results.unfinished:
        out.print(f"{results.unfinished}\n", markup=False, soft_wrap=True)
    print_metrics(record, results.definitions)
    if leak := leaked_images([record]):
        out.print(f"{leak}\n", markup=False, soft_wrap=True)
    if results.grows:
        rows: list[tuple[str, ...]] = []
        for entry in record["decisions"]:
            rows += decision_rows(entry)
        print_table("decisions", tuple(DECISION_COLUMNS), rows, left=2)
        if by_rank := rank_line(results):
            out.print(f"{by_rank}\n", markup=False, soft_wrap=True)
    parts = list(part_rows(results))
    if parts:
        print_table("further numbers", ("task", "candidate", "measure", "numbers"), parts, left=4)
    _print_tasks(record)
    for key, title in (("accuracy_matrix", "accuracy by task"), ("retrieval_matrix", "retrieval by task")):
        if record.get(key):
            out.print(_matrix(record[key], f"{title} (percent)"))
    if tasks := tasks_of_accuracy(record):
        why = "no numbers in a row: the task brought no new class"
        out.print(f"{why}; FAA is over {tasks}\n", soft_wrap=True)
    drift = record.get("feature_drift")
    if drift and any(any(column) for column in drift):
        out.print(_matrix(_by_task(drift), "feature drift by task (percent)"))
    elif drift and any(drift):
        out.print("no feature of an old task drifted\n")
    for text in _findings(record):
        out.print(text)
    if motions := record.get("findings", {}).get("motions"):
        print_table("motions by task", tuple(_MOTION_COLUMNS), _motions(record, motions), left=0)
    print_table("costs", ("part", "value"), _costs(record))
    for name, codes in results.several_codes.items():
        told = f"tasks of this run are learned by different code of a plugin: {name} {' and '.join(codes)}"
        out.print(told, markup=False, soft_wrap=True)
    if record["deviations"]:
        _print_deviations(results)
    elif results.is_published:
        out.print("no setting differs from the published method")


def _print_tasks(record: Record) -> None:
    """Print the domain, if there are some, and the classes of each task that was learned."""
    domains = record.get("domains")
    done = len(record["accuracy_matrix"])
    rows = []
    for task, targets in enumerate(record.get("task_classes", ())[:done]):  # an older record has none
        names = [record["class_names"][target] for target in targets]
        domain = [domains[task]] if domains else []
        rows.append((str(task + 1), *domain, _first(names)))
    if rows:
        columns = ("task", "domain", "classes") if domains else ("task", "classes")
        print_table("tasks", columns, rows, left=3)


def _first(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    text = ", ".join(names[:_NAMED])
    return f"{text} and {len(names) - _NAMED} more" if len(names) > _NAMED else text


def _findings(record: Record) -> Iterator[str]:
    """Yield what a run has found beside its metrics, a line each."""
    findings = record.get("findings", {})
    if head := head_taken(record):
        yield head
    stale = record.get("stale_classes", {}).get("last")
    if stale:
        text = (
            f"{100 * stale:.0f} % of the classes are stale: their features may have drifted since their "
            "statistics were taken"
        )
        if "carry_forwards" in findings:
            text += "; the head transports its own statistics"
        yield text
    ahead = record.get("next_domain")
    if ahead:
        text = f"before their tasks are learned, {number(ahead['mean'])} % of new test images are right"
        if ahead.get("chance") is not None:  # earlier versions did not note it
            text += f"; of a guess among the seen classes, {number(ahead['chance'])} %"
        yield text
    noted = record.get("calibration")
    if noted:
        whose = "uncalibrated probabilities" if noted["temperature"] is None else "probabilities"
        yield f"calibration error of {whose}: {number(noted['ece'], 1)} % (ECE, {noted['bins']} bins)"
    if _errs_between_tasks(record):
        yield _BETWEEN_TASKS


def _errs_between_tasks(record: Mapping[str, Any]) -> bool:
    """Whether there are errors, and every wrong class is one of another task though tasks have several."""
    metrics: Mapping[str, float | None] = record["metrics"]
    right, in_task = metrics.get("faa"), metrics.get("task_accuracy")
    if right is None or in_task is None or right >= 100:
        return False
    if all(len(classes) == 1 for classes in record["task_classes"]):
        return False
    # both are means over the same tasks: they are equal where the right task gives the right class
    return abs(right - in_task) < _ROUNDING


def _by_task(drift: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Turn drift by evaluation into rows by task, in percent, like an accuracy matrix."""
    rows: list[list[float | None]] = [[None] * len(drift) for _ in drift[1:]]
    for after, column in enumerate(drift):
        for task, value in enumerate(column):
            rows[task][after] = None if value is None else 100 * value
    return rows


_MOTION_COLUMNS = {
    "after": "the task that moved features, counted from 1",
    "new classes": "how far the means of its own classes moved, in units of the features",
    "old classes": "how far the means of old classes were carried",
    "times": "motion of the new classes in medians of earlier tasks'; ! from 3, where a carry may go too far",
    "held": "old classes that took less than half of the motion, because they are far from the new ones",
}


def _motions(record: Record, motions: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Yield a row per task that moved old classes."""
    names = record["class_names"]
    for entry in motions:
        times = "-"
        if entry["times"] is not None:  # the first tasks have no median to be compared with
            times = f"{entry['times']:.1f}"
        if entry["alarming"]:
            times += " !"
        held = [names[target] for target in entry["held"]]
        shown = f"{len(held)} of {entry['carried']}"
        if held:
            shown += f": {_first(held)}"
        yield (str(entry["task"] + 1), digits(entry["new"]), digits(entry["old"]), times, shown)


def _terms(results: Recorded) -> dict[str, str]:
    """Return what each number means that the run has."""
    record = results.content
    terms: dict[str, str] = {}
    if results.grows and record["decisions"]:
        terms |= DECISION_COLUMNS | PART_MEANINGS
    if record.get("findings", {}).get("motions"):
        terms |= _MOTION_COLUMNS
    costs = {name for name, _ in _costs(record)}
    return terms | results.explained | {name: text for name, text in _COSTS.items() if name in costs}


_NAMED = 4
"""Classes that are named."""

_COSTS = {
    "evidence (s)": "seconds of deciding on growth",
    "training (s)": "seconds of the training phases of baseline and retrieval",
    "subspace (s)": "seconds of building spaces and protection rules",
    "evaluation (s)": "seconds of predicting test samples",
    "total (s)": "seconds from start to end, including all of the above and checkpoints",
    "training images/s": "training images per second of training",
    "passes per test image": "forwards through a set per test image, without the query's",
    "ms per test image": "milliseconds of these forwards in the last evaluation, in batches",
    "expert's forwards per test image": "un-prompted forwards for a frozen expert: 0 where queries are known",
    "expert's numbers": "means and covariance of the frozen expert, among statistics below",
    "head's temperature": "what the head's scores are divided by beside a frozen expert",
    "expert_per_image": "floating point operations of the frozen expert's forward, among those of inference",
    "training_per_image": "floating point operations of a training step, per image",
    "inference_per_image": "floating point operations of a prediction, retrieval included, per image",
    "prompt_vectors": "vectors of the backbone's width in all sets",
    "basis_vectors": "basis vectors of the spaces that protect old tasks",
    "parameters": "numbers added to the frozen backbone",
    "statistics": "further numbers kept from task to task: means, covariances, Gram matrices, bases",
}


def _costs(record: Record) -> Iterator[tuple[str, str]]:
    """Yield what a run has cost, as a name and its text."""
    for name, value in record["seconds"].items():
        if name != "per_test_image":
            yield f"{name} (s)", number(value)
    routing = record.get("routing")
    if routing:
        yield "passes per test image", str(routing["passes_per_image"])
        yield "ms per test image", number(1e3 * record["seconds"].get("per_test_image", 0.0))
    expert = record.get("expert")
    if expert:
        yield "expert's forwards per test image", number(expert["forwards_per_image"])
        yield "expert's numbers", number(expert["numbers"])
        yield "head's temperature", digits(expert["temperature"])
    yield "training images/s", number(record.get("images_per_second"), 1)
    for name, value in record.get("flops", {}).items():
        yield name, "-" if value is None else f"{value / 1e6:,.1f} MFLOP"
    for name, value in record["storage"].items():
        yield name, number(value)


def _headline(results: Recorded) -> str:
    """Return the first lines about a run: its parts, the protocol, and where its record comes from."""
    record = results.content
    config = record["config"]
    retrieval = (config.get("retrieval") or {}).get("name", "none")
    constraints = list(config["constraints"]) or ["none"]
    protocol = record["protocol"]
    changed = [entry["option"] for entry in record["protocol_changes"]]
    if changed:
        protocol += f" (changed: {', '.join(changed)})"
    return (
        f"{results.method} on {_stream(results)}, backbone {config['backbone']['name']}, "
        f"retrieval {retrieval}, constraints {listed(constraints)}, seed {record['seed']}, "
        f"lw2g {record['lw2g_version']}\nprotocol {protocol}\n"
        f"{_precision(record.get('precision'))}{_hash(record.get('record_hash'))}"
        f"{_origin(record.get('origin'))}"
    )


def _precision(settled: Record | None) -> str:
    """Return what a run was asked to compute in, what it computed in, and why, in one line."""
    if not settled:  # of an older lw2g
        return ""
    asked = ", asked for auto" if settled.get("asked") == "auto" else ""
    return f"precision {settled.get('used')}{asked}: {settled.get('reason')}\n"


def _hash(record_hash: str | None) -> str:
    return "" if record_hash is None else f"record hash {record_hash[:16]} (all but the clocks)\n"


def _origin(origin: Record | None) -> str:
    """Return the parent run of a fork and the changed options, in one line."""
    if origin is None:
        return ""
    changed = [f"{change['option']} {change['before']} -> {change['after']}" for change in origin["changed"]]
    return (
        f"forked from {origin['run']} after task {origin['task'] + 1}; "
        f"changed: {', '.join(changed) or 'nothing'}\n"
    )


_COLUMNS = 20
"""The largest number of columns of a printed matrix."""
_BETWEEN = 2
"""Letters between two columns."""


def _matrix(matrix: Sequence[Sequence[float | None]], title: str) -> Any:
    """Return a table of a matrix by task: a row per task, a column per task after which it was measured.

    Args:
        matrix: ``A[i][t]`` of task i after task t; None where task i was not learned yet. A table of drift
            has no row for the last task. Of a long stream one task in several is shown, as many as fit.
        title: What stands above it.
    """
    num_tasks = len(matrix[0])
    least = math.ceil(num_tasks / _COLUMNS)
    width = console().width
    for step, decimals in itertools.product(range(least, num_tasks + 1), (2, 1)):
        # counted back from the last task, which is always shown
        shown = [task for task in range(num_tasks) if (num_tasks - 1 - task) % step == 0]
        rows = []
        for task in shown:
            if task < len(matrix):
                values = [matrix[task][after] for after in shown]
                rows.append((str(task + 1), *(_known(value, decimals) for value in values)))
        longest = max(len(cell) for cell in ("after", *itertools.chain(*rows)))
        if (len(shown) + 1) * (longest + _BETWEEN) <= width:
            break
    columns = ("task", *(f"after {after + 1}" for after in shown))
    if step > 1:
        title += f", one task in {step} (--json: all)"
    return table(title, columns, rows)


def _known(value: float | None, decimals: int) -> str:
    """Return a number, or nothing where there is none: a task that was not learned yet."""
    return "" if value is None else number(value, decimals)


def _print_deviations(results: Recorded) -> None:
    """Print the options that are not those of the published method, or of its parts, with their values."""
    rows = [
        (entry["option"], _value(entry["value"]), _value(entry.get("published")), entry.get("note", ""))
        for entry in results.content["deviations"]
    ]
    baseline = results.content["config"]["baseline"]["name"]
    title = f"what differs from the published {baseline}"  # which --recommended and --trained are not
    if not results.is_published:
        title = "what differs from what is published"
    print_table(title, ("option", "value", "published", "note"), rows, left=4)


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)
