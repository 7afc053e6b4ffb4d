"""Notes on the rows of a table: in what they differ beside their names, and what their runs have chosen."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lw2g.config.roles import role_of_key
from lw2g.disk.contents import record_hash
from lw2g.disk.plugin_code import code_among, is_of_several, mixed_code
from lw2g.errors import as_word, counted
from lw2g.maths.choosing import named_in_tasks
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import ReportedRun
from lw2g.results.row_names import named_by_grid
from lw2g.results.run_draws import draw_of, named_orders, named_seeds
from lw2g.runtime.console import tasks_of_accuracy

__all__ = [
    "NOT_COUNTED",
    "by_domain",
    "changed_records",
    "different_code",
    "different_constraints",
    "different_orders",
    "different_seeds",
    "domains_of_rows",
    "further_runs",
    "heads_taken",
    "leaked",
    "leaked_images",
    "names_of_grid",
    "over_orders",
    "over_tasks",
]

Rows: TypeAlias = Sequence[tuple[str, Sequence[ReportedRun]]]
"""Rows by label, with their runs."""
NOT_COUNTED = "not counted: "
"""How a note begins on runs that no number of a table is over."""
_BY_DOMAIN = "by domain"


def names_of_grid(
    firsts: Sequence[ReportedRun], labels: Sequence[str], methods: Sequence[str]
) -> Iterator[str]:
    """Yield what the rows are that a grid named: such a name says not what was changed.

    Args:
        firsts: The first run of each row.
        labels: The name of each.
        methods: What each is.
    """
    told = []
    for run, label, method in zip(firsts, labels, methods, strict=True):
        if run.label and label == named_by_grid(run):
            told.append(f"{run.label} is {method}")
    if told:  # unfinished runs of a row have its name as well
        yield f"names of the grid: {'; '.join(dict.fromkeys(told))}"


def changed_records(rows: Rows) -> Iterator[str]:
    """Yield which runs have a record that is not the one that they wrote, once for all of them."""
    places = []
    for _, runs in rows:
        for run in runs:
            written = run.record.get("record_hash")
            # older records have none; a stored one was verified, and has one's own class names since
            if written is not None and run.given is None and written != record_hash(run.record):
                places.append(as_word(run.path))
    if places:
        of_whom = f"the record of {places[0]} was changed after the run"
        if len(places) > 1:
            of_whom = f"the records of {len(places)} runs were changed after the runs"
        yield f"{of_whom}: lw2g verify {places[0]} tells what"


def leaked_images(records: Iterable[Mapping[str, Any]]) -> str:
    """Return that some test images of runs were trained on; nothing where none is, or nobody can tell.

    Class orders may draw their own images: of runs that differ, the largest number is told.
    """
    told = [record.get("shared_images") or {"count": 0, "tested": 0} for record in records]
    numbers = {(shared["count"], shared["tested"]) for shared in told}
    count, tested = max(numbers, default=(0, 0))
    if not count:
        return ""
    most = "up to " if len(numbers) > 1 else ""
    are = "is a training image" if count == 1 else "are training images"
    of = counted(tested, "test image")
    return f"{most}{count} of {of} {are}, too, so accuracy is not that of unseen images alone"


def leaked(rows: Rows) -> Iterator[str]:
    """Yield how many test images were trained on, with the rows that this is so of."""
    records = {label: [run.record for run in runs] for label, runs in rows}
    labels = [label for label, of_row in records.items() if leaked_images(of_row)]
    if not labels:
        return
    text = leaked_images(record for label in labels for record in records[label])
    places = f"{'row' if len(labels) == 1 else 'rows'} {'; '.join(labels)}"
    if len(labels) == len(rows):
        places = "all rows"
    yield f"{text} ({places})" if len(rows) > 1 else text


def different_orders(rows: Rows, tested: Mapping[str, int | None]) -> Iterator[str]:
    """Yield that means over different class orders, or test images, do not compare, with those of each row.

    Args:
        rows: The rows.
        tested: How many test images each row has, by its label; None where that is not known.
    """
    labels: dict[tuple[frozenset[tuple[int, ...]], int | None], list[str]] = defaultdict(list)
    names: dict[frozenset[tuple[int, ...]], str] = {}
    finished = [label for label, runs in rows if runs[0].state == "finished"]
    numbers = {tested[label] for label in finished} - {None}
    for label, runs in rows:
        if runs[0].state == "finished":  # others stand in rows of their own
            orders = frozenset(tuple(run.record["class_order"]) for run in runs)
            labels[orders, tested[label] if len(numbers) > 1 else None].append(label)
            names.setdefault(orders, named_orders(runs))
    different = []
    if len(names) > 1:
        different.append("class orders")
    if len(numbers) > 1:
        different.append("test images")
    if different:
        each = []
        for (orders, number), of in labels.items():
            images = "" if number is None else f", {number:,} test images"
            each.append(f"{names[orders]}{images} ({'; '.join(of)})")
        yield f"means over different {' and '.join(different)} do not compare: {', '.join(each)}"


def different_seeds(rows: Rows) -> Iterator[str]:
    """Yield which rows have which seeds, where these differ: only equal ones make pairs."""
    labels: dict[str, list[str]] = defaultdict(list)
    for label, runs in rows:
        if runs[0].state == "finished":
            labels[named_seeds({draw_of(run)[0] for run in runs})].append(label)
    if len(labels) > 1:
        yield f"rows have different seeds, and differences are over equal ones: {_by_what(labels)}"


def different_constraints(rows: Rows, catalogue: Catalogue) -> Iterator[str]:
    """Yield which rows of one method have which constraints: they differ in these beside their policies."""
    labels: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for label, runs in rows:
        config = runs[0].config
        name = config["baseline"]["name"]
        if catalogue.grows(name):  # else nothing decides, and nothing is protected
            labels[name]["+".join(sorted(config["constraints"])) or "none"].append(label)
    for of_method in labels.values():
        if len(of_method) > 1:
            yield f"constraints differ, not the policy alone: {_by_what(of_method)}"


def different_code(rows: Rows) -> Iterator[str]:
    """Yield which rows are of runs with different code of a plugin, and which rows differ in it."""
    labels: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    every: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    within = list[str]()
    for label, runs in rows:
        paths = [run.path for run in runs]
        within += [f"{label}: {code}" for code in mixed_code(paths)]
        for name, counts in code_among(paths).items():
            of_row = {code for had in counts for code in had}
            labels[name][" and ".join(sorted(of_row))].append(label)
            every[name].update(counts)
    if within:
        yield f"runs of one row have different code of a plugin: {'; '.join(within)}"
    for name, of_rows in labels.items():
        if len(of_rows) > 1 and is_of_several(every[name]):
            yield f"rows have different code of {name}: {_by_what(of_rows)}: a difference may be the code's"


def _by_what(labels: Mapping[str, Sequence[str]]) -> str:
    """Return what rows have, with their labels in brackets."""
    return ", ".join(f"{what} ({'; '.join(of)})" for what, of in labels.items())


def heads_taken(rows: Rows) -> Iterator[str]:
    """Yield which heads the runs of each row have taken that chose one by themselves."""
    for label, runs in rows:
        choices = [(run.record.get("findings") or {}).get("choice") for run in runs]
        taken = Counter(named_in_tasks(choice, choice) for choice in choices if choice is not None)
        if len(taken) == 1:
            yield f"head taken by {label}: {next(iter(taken))}"
        elif taken:
            each = ", ".join(f"{name} in {counted(of, 'run')}" for name, of in taken.items())
            yield f"head taken by {label}: {each}"


def over_orders(rows: Rows) -> Iterator[str]:
    """Yield the least, mean and largest FAA of rows over class orders, each the mean of its seeds."""
    told: dict[int, list[str]] = defaultdict(list)
    for label, runs in rows:
        orders: dict[tuple[int, ...], list[float]] = defaultdict(list)
        for run in runs:
            value = run.record["metrics"]["faa"]
            if value is not None:
                orders[tuple(run.record["class_order"])].append(value)
        means = list(map(statistics.fmean, orders.values()))
        if len(means) > 1:
            shown = f"{min(means):.2f} / {statistics.fmean(means):.2f} / {max(means):.2f}"
            told[len(means)].append(f"{label} {shown}")
    for number, of_rows in told.items():
        yield f"FAA over {number} class orders (min / mean / max): {'; '.join(of_rows)}"


def over_tasks(rows: Rows) -> Iterator[str]:
    """Yield over how many tasks FAA is where some have brought no new class."""
    shares = {tasks_of_accuracy(run.record) for _, runs in rows for run in runs} - {""}
    if shares:
        yield f"FAA is over {' or '.join(sorted(shares))}: the others brought no new class"


def by_domain(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the accuracy of the final model on each domain, in a line; of several runs the mean.

    Where a domain comes in several tasks, it is the mean of theirs. It is empty for fewer than two domains.

    Args:
        records: The record of each run.
    """
    of_domain: dict[str, list[float]] = {}
    of_tasks = ""
    for record in records:
        rows = record["accuracy_matrix"]
        domains = (record.get("domains") or [])[: len(rows)]
        if len(set(domains)) < 2:  # a domain alone is the final accuracy
            return ""
        if len(set(domains)) < len(domains):
            of_tasks = ", each the mean of its tasks"
        for domain, row in zip(domains, rows, strict=True):
            if row[-1] is None:
                return ""
            of_domain.setdefault(domain, []).append(row[-1])
    of_each = [f"{domain} {sum(each) / len(each):.1f} %" for domain, each in of_domain.items()]
    return f"{_BY_DOMAIN}{of_tasks}: {', '.join(of_each)}" if of_each else ""


def domains_of_rows(rows: Rows) -> Iterator[str]:
    """Yield the accuracies of all rows by domain as one note, where there are domains."""
    told = {}
    for label, runs in rows:
        if line := by_domain([run.record for run in runs]):
            told[label] = line.removeprefix(_BY_DOMAIN)
    if len(rows) == 1:
        yield from (f"{_BY_DOMAIN}{line}" for line in told.values())
    elif told:
        yield f"{_BY_DOMAIN}: {'; '.join(f'{label}{line}' for label, line in told.items())}"


def further_runs(
    label: str, group: Sequence[ReportedRun], counted_in: int, catalogue: Catalogue
) -> Iterator[str]:
    """Yield how many runs of a row are beyond those of its numbers; nothing where none is.

    Args:
        label: The name of the row.
        group: All of its runs.
        counted_in: How many of them count.
        catalogue: Knows which options draw.
    """
    number = len(group) - counted_in
    if number:
        runs = counted(number, "further run")
        yield f"{NOT_COUNTED}{runs} of the same seed of {label}{_idle_draws(group, catalogue)}"


def _idle_draws(group: Sequence[ReportedRun], catalogue: Catalogue) -> str:
    """Return which options that draw differ among runs of one seed, order and data; empty where none does."""
    idle = set[str]()
    first: dict[object, ReportedRun] = {}
    for run in group:
        other = first.setdefault((draw_of(run), run.record["fingerprints"]["benchmark"]), run)
        for key in run.options.keys() & other.options.keys():
            if run.options[key] != other.options[key] and role_of_key(key, run.config, catalogue) == "draw":
                idle.add(key)
    return f": {', '.join(sorted(idle))} drew nothing" if idle else ""
