"""A table of the packs under one protocol, whose runs differ by seed: mean FAA, and what is saved."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from lw2g.results.summaries import paired_difference
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
    packs = [pack for pack, run in stored.runs if run.given is not None and run.given.protocol == protocol]
    found = {row["label"]: [pack for pack in packs if _fits(pack, row)] for row in rows}
    base = _by_seed(found[against])
    yield "| | seeds | FAA | less a set each | sets |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for label, own in found.items():
        if not own:
            continue
        faa, sets = _by_seed(own), [len(set(pack.record["task_to_set"])) for pack in own]
        apart = None if label == against else paired_difference(faa, base)
        shown = "-"
        if apart is not None:
            shown = f"{apart.mean:+.1f}" + ("" if apart.half is None else f" ± {apart.half:.1f}")
        grows = own[0].record["metrics"].get("ssp") is not None
        kept = f"{statistics.fmean(sets):.1f}" if grows else "-"
        yield f"| {label} | {len(own)} | {statistics.fmean(faa.values()):.1f} | {shown} | {kept} |"


def _fits(pack: Pack, row: Mapping[str, str]) -> bool:
    """Return whether a pack is a run of a row."""
    heads = pack.record["config"].get("growth", {}).get("heads")
    return pack.submission["method"] == row["method"] and heads == row.get("heads", heads)


def _by_seed(packs: Sequence[Pack]) -> dict[int, float]:
    return {int(pack.record["seed"]): float(pack.record["metrics"]["faa"]) for pack in packs}
