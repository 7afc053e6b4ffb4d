"""``lw2g show``: what a run decided and reached, from its record alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lw2g.cli.output import console, number, print_metrics, print_summary, table
from lw2g.errors import DataError

__all__ = ["show"]

Record = Mapping[str, Any]


@click.command(short_help="Show decisions, matrices and metrics of a run.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the record as it is stored.")
def show(run: Path, as_json: bool) -> None:
    """Show the run in the directory RUN: decisions with their evidence, matrices, metrics, seconds.

    Tasks count from 1; sets are shown by their ids (#0 is the first); percentages are 0 to 100.
    """
    path = _record_path(run)
    try:
        text = path.read_text(encoding="utf-8")
        record = json.loads(text)
    except (OSError, json.JSONDecodeError) as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}; resume the run to write it anew") from error
    if as_json:
        click.echo(text, nl=not text.endswith("\n"))
    elif "seeds" in record and "metrics" in record and "config" not in record:
        print_summary(record)
    else:
        _print_record(record)


def _record_path(run: Path) -> Path:
    if run.is_file():
        return run
    for name in ("record.json", "summary.json"):
        if (run / name).exists():
            return run / name
    if (run / "config.toml").exists():
        raise DataError(f"the run {str(run)!r} has finished no task yet; go on with it: lw2g resume {run}")
    raise DataError(f"no run at {str(run)!r}: it has no record.json; give a run's directory")


def _print_record(record: Record) -> None:
    out = console()
    out.print(_headline(record))
    out.print(
        table(
            "decisions",
            _DECISION_COLUMNS,
            [row for entry in record["decisions"] for row in _decision(entry)],
            left=2,
        )
    )
    for key, title in (("accuracy_matrix", "accuracy by task"), ("retrieval_matrix", "retrieval by task")):
        if record.get(key):
            out.print(_matrix(record[key], title))
    print_metrics(record)
    for key, title in (("seconds", "seconds"), ("storage", "storage")):
        rows = [(name, number(value)) for name, value in record[key].items()]
        out.print(table(title, ("part", "value"), rows))
    out.print(f"images per second (training): {number(record.get('images_per_second'), 1)}")
    _print_deviations(record["deviations"])


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
    )


_DECISION_COLUMNS = (
    "task",
    "decision",
    "set",
    "candidate",
    "HFC",
    "HFC_pre",
    "Z",
    "error",
    "rank",
    "null",
    "energy null",
    "excluded",
)


def _decision(entry: Record) -> Iterator[tuple[str, ...]]:
    """Yield one row per candidate; only the first one repeats the task and what was decided."""
    head = (str(entry["task"] + 1), str(entry["decision"]), _set(entry["set"]))
    for candidate in entry["candidates"] or [{}]:
        yield (*head, *_candidate(candidate))
        head = ("", "", "")


def _candidate(candidate: Record) -> tuple[str, ...]:
    keys = ("hfc", "hfc_pre", "z", "z_error")
    rank = candidate.get("rank")
    return (
        _set(candidate.get("set")),
        *(number(candidate.get(key)) for key in keys),
        "-" if rank is None else str(rank),
        number(candidate.get("null_hfc")),
        number(candidate.get("energy_null_hfc")),
        candidate.get("excluded") or "",
    )


def _set(set_id: int | None) -> str:
    return "-" if set_id is None else f"#{set_id}"


def _matrix(matrix: Sequence[Sequence[float | None]], title: str) -> Any:
    """Draw ``A[i][t]``: row = task, column = after which task."""
    columns = ("task", *(f"after {after + 1}" for after in range(len(matrix[0]))))
    rows = [
        (str(task + 1), *("" if value is None else number(value) for value in row))
        for task, row in enumerate(matrix)
    ]
    return table(f"{title} (percent)", columns, rows)


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
