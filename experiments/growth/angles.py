"""What HFC and Z say beyond the size of a space, and in which blocks: read off the records of runs.

    python experiments/growth/angles.py RUN...

A run that looks at evidence notes, for each task and live set, HFC against the old and the pre-trained space
at every site, the ranks, and two nulls: the HFC of a random direction (``rank null``) and of one that only
follows the task's activation energy (``energy null``). First table: share of the variance of HFC, over the
candidates of one task, that a straight line in each null explains, and what remains in degrees beside the
error of Z *within a task*: that of a candidate's distance from the mean of its task, from replicates on the
same images; and the share of the pairs of one task whose Z differ by more than two errors of the difference.
Second: Z by block, the share of candidates with Z < 0 there, and how the block's Z goes with that of all
blocks. Third, where all runs have the same candidates (``sensitivity.toml``): Z of each run beside that of
the first.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from lw2g.interfaces.growth import error_of_difference

Numbers = NDArray[np.float64]


@attrs.frozen(kw_only=True, eq=False)
class Angles:
    """The candidates of a run, a row each.

    Attributes:
        name: The run, as a table names it.
        growth: How spaces and evidence were made.
        candidates: Task and set of each.
        columns: Quantities by name, ``[n]``.
        replicates: Of Z, a tuple each, empty where a record has none.
        blocks: Names of the sites.
        sites: Z of each site, ``[n, sites]``.
    """

    name: str
    growth: Mapping[str, Any]
    candidates: Sequence[tuple[int, int]]
    columns: Mapping[str, Numbers]
    replicates: Sequence[Sequence[float]]
    blocks: Sequence[str]
    sites: Numbers

    @property
    def tasks(self) -> Numbers:
        """The task for which each was a candidate."""
        return np.array([task for task, _ in self.candidates], float)


def read(run: Path) -> Angles:
    """Return the angles of a run; candidates that no space allowed to compare are left out."""
    record = json.loads((run / "record.json").read_text())
    rows = [
        (decision["task"], one["set"], measured)
        for decision in record["decisions"]
        for one in decision["candidates"]
        if (measured := one["measures"].get("hindrance")) is not None and measured["value"] is not None
    ]
    if not rows:
        raise SystemExit(
            f"{run} has no angles: run it with a policy that reads hindrance, or growth.measures"
        )
    config, found = record["config"], [measured for *_, measured in rows]
    blocks = list(found[0]["sites"])
    return Angles(
        name=f"{config['baseline']['name']}, {config['policy']['name']}, seed {record['seed']}",
        growth=config["growth"],
        candidates=[(task, number) for task, number, _ in rows],
        columns={
            "z": np.array([one["value"] for one in found]),
            "error": np.array([one["error"] for one in found], float),
            **{
                name: np.array([one["parts"][part] for one in found], float)
                for name, part in (
                    ("hfc", "hfc"),
                    ("rank null", "null_hfc"),
                    ("energy null", "energy_null_hfc"),
                )
            },
        },
        replicates=[one.get("replicates", ()) for one in found],
        blocks=blocks,
        sites=np.array([[one["sites"][site]["value"] for site in blocks] for one in found], float),
    )


def within(values: Numbers, tasks: Numbers) -> Numbers:
    """Return values less their mean over the candidates of the same task."""
    means = {task: values[tasks == task].mean() for task in np.unique(tasks)}
    centred: Numbers = values - np.array([means[task] for task in tasks])
    return centred


def told_apart(one: Angles) -> tuple[float, float]:
    """Return the error of Z within a task, and the share of pairs of one task that differ by two errors.

    Neither is a number where the record has no replicates, or no task two candidates.
    """
    variances, far = [], []
    for task in np.unique(one.tasks):
        here = np.flatnonzero(one.tasks == task)
        errors = {
            pair: error_of_difference(*(one.replicates[i] for i in pair))
            for pair in itertools.combinations(here, 2)
        }
        known = {pair: error for pair, error in errors.items() if error is not None}
        far += [abs(one.columns["z"][a] - one.columns["z"][b]) > 2 * error for (a, b), error in known.items()]
        # the squares of n distances from their mean are those of all pairs' differences, over n
        if len(known) == len(errors):
            variances += [sum(error**2 for error in known.values()) / len(here) ** 2] * len(here)
    within_task = float(np.sqrt(np.mean(variances))) if far else float("nan")
    return within_task, float(np.mean(far)) if far else float("nan")


def explained(values: Numbers, by: Sequence[Numbers]) -> tuple[float, float]:
    """Return the share of the variance that a linear model explains, and the deviation that remains.

    The share is not a number where there is no variance, as with one candidate a task.

    >>> share, left = explained(np.array([1.0, 2.0, 3.0]), [np.array([2.0, 4.0, 6.0])])
    >>> round(share, 6), round(left, 6)
    (1.0, 0.0)
    """
    design = np.stack([np.ones(len(values)), *by], axis=1)
    rest = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    share = 1 - float(rest.var() / values.var()) if values.var() > 0 else float("nan")
    return share, float(rest.std())


def correlation(one: Numbers, other: Numbers) -> float:
    """Return Pearson's correlation; not a number where one of them is constant."""
    return float(np.corrcoef(one, other)[0, 1]) if one.std() * other.std() > 0 else float("nan")


def beyond_rank(one: Angles) -> list[Any]:
    """Return the row of the first table."""
    own = {name: within(values, one.tasks) for name, values in one.columns.items()}
    nulls = [own["rank null"], own["energy null"]]
    shares = [explained(own["hfc"], [null])[0] for null in nulls]
    both, left = explained(own["hfc"], nulls)
    error, far = told_apart(one)
    return [one.name, len(one.tasks), *shares, both, own["hfc"].std(), left, error, far]


def by_block(one: Angles) -> list[list[Any]]:
    """Return the rows of the second table."""
    whole = one.columns["z"]
    return [
        [one.name, block, z.mean(), f"{100 * np.mean(z < 0):.0f}", correlation(z, whole)]
        for block, z in zip(one.blocks, one.sites.T, strict=True)
    ]


def beside(one: Angles, first: Angles) -> list[Any]:
    """Return the row of the third table."""
    changed = [f"{name} = {value}" for name, value in one.growth.items() if value != first.growth[name]]
    mine, reference = one.columns["z"], first.columns["z"]
    return [
        ", ".join(changed) or one.name,
        mine.mean(),
        f"{100 * np.mean(mine < 0):.0f}",
        one.columns["error"].mean(),
        correlation(mine, reference),
        correlation(within(mine, one.tasks), within(reference, one.tasks)),
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    told = [[_told(cell) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in told)


def _told(cell: Any) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.2f}" if np.isfinite(cell) else "-"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    found = [read(run) for run in parser.parse_args().runs]
    explained_by = ["rank null", "energy null", "both"]
    own = ["HFC within a task", "left by both", "error of Z within a task", "pairs 2 errors apart"]
    head = ["run", "candidates", *explained_by, *own]
    print(table(head, [beyond_rank(one) for one in found]))
    print()
    rows = [row for one in found for row in by_block(one)]
    print(table(["run", "site", "Z", "Z < 0, %", "correlation with Z"], rows))
    first, *others = found
    if others and all(one.candidates == first.candidates for one in others):
        print()
        head = ["run", "Z", "Z < 0, %", "error of Z", "correlation with the first", "within a task"]
        print(table(head, [beside(one, first) for one in found]))


if __name__ == "__main__":
    main()
