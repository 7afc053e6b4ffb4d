"""A table of the packs under one protocol, whose runs differ by seed: mean FAA, and what is saved."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from stream_tables import with_interval

from lw2g.results.bootstrap import over_orders_and_images
from lw2g.results.found_runs import ReportedRun
from lw2g.results.right_answers import RightAnswers, right_answers_of
from lw2g_store.packs import Pack
from lw2g_store.stored import Stored


def seeds_of(stored: Stored, protocol: str, rows: Sequence[Mapping[str, str]], against: str) -> Iterator[str]:
    """Yield the lines in Markdown: seeds, FAA, the paired difference from a row, sets that a run ends with.

    Args:
        stored: The store's packs.
        protocol: The protocol's id.
        rows: The label and the method of each, and ``heads``, the spaces of its evidence, where that tells
            two rows apart. A row without packs has dashes.
        against: The label of the row that others are compared with.
    """
    runs = [
        (pack, run) for pack, run in stored.runs if run.given is not None and run.given.protocol == protocol
    ]
    found = {row["label"]: [each for each in runs if _fits(each[0], row)] for row in rows}
    base = _answers_by_seed(found[against])
    yield "| | seeds | FAA | minus a set each | sets |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for label, own in found.items():
        if not own:
            continue
        records = [pack.record for pack, _ in own]
        faa = [float(record["metrics"]["faa"]) for record in records]
        sets = [len(set(record["task_to_set"])) for record in records]
        apart = None if label == against else over_orders_and_images(_answers_by_seed(own), base)
        shown = "-"
        if apart is not None:
            shown = with_interval(apart)
        grows = records[0]["metrics"].get("ssp") is not None
        kept = f"{statistics.fmean(sets):.1f}" if grows else "-"
        yield f"| {label} | {len(own)} | {statistics.fmean(faa):.1f} | {shown} | {kept} |"


def _fits(pack: Pack, row: Mapping[str, str]) -> bool:
    """Return whether a pack is a run of a row."""
    heads = pack.record["config"].get("growth", {}).get("heads")
    return pack.submission["method"] == row["method"] and heads == row.get("heads", heads)


def _answers_by_seed(runs: Sequence[tuple[Pack, ReportedRun]]) -> dict[int, RightAnswers]:
    found = {}
    for pack, run in runs:
        answers = right_answers_of(run)
        assert answers is not None, "a pack has its answers"
        found[int(pack.record["seed"])] = answers
    return found
