"""The results as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Results = Mapping[str, Mapping[str, Any]]


def write_report(results: Results, path: Path) -> None:
    """Write one table per part; what failed or was skipped stands below it with the reason."""
    lines = ["# lw2g on a GPU", ""]
    for part, found in results.items():
        lines += [f"## {part}", ""]
        good = {name: one for name, one in found.items() if not {"error", "reason"} & one.keys()}
        if good:
            lines += [*_TABLES[part](good, results), ""]
        for name, one in found.items():
            if name not in good:
                lines.append(f"- {name}: {one.get('error') or one['reason']}")
        lines += [""] if len(good) < len(found) else []
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    shown = [heads, ["---"] * len(heads), *([_cell(value) for value in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in shown]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")


def _machine(found: Mapping[str, Any], results: Results) -> list[str]:
    pairs = [(name, key, value) for name, one in found.items() for key, value in one.items() if key != "took"]
    return _table(["what", "figure", "value"], pairs)


def _agreement(found: Mapping[str, Any], results: Results) -> list[str]:
    keys = ("losses", "gradients", "logits", "z_degrees", "equal_predictions", "same_sets")
    rows = [[name, *(one[key] for key in keys)] for name, one in found.items()]
    return _table(
        ["run", "losses", "gradients", "logits", "Z, degrees", "equal predictions", "same sets"], rows
    )


def _decisive(found: Mapping[str, Any], results: Results) -> list[str]:
    pairs = [(name, key, value) for name, one in found.items() for key, value in one.items() if key != "took"]
    return _table(["what", "figure", "value"], pairs)


def _cells(found: Mapping[str, Any], results: Results) -> list[str]:
    keys = ("faa", "ffm", "pra", "ssp", "seconds", "attempts", "same_bits", "travel_mib")
    rows = [[name, *(one.get(key) for key in keys)] for name, one in found.items()]
    return _table(["cell", *keys], rows)


def _training(found: Mapping[str, Any], results: Results) -> list[str]:
    heads = ["model / mode / method", "batch", "ms", "images/s", "share of rate", "peak MiB"]
    heads += ["ms / bare timm's", "MiB / bare timm's"]
    rows = []
    for name, one in found.items():
        bare = found.get(f"{name.rsplit(' / ', 1)[0]} / bare timm", {}).get("batches", {})
        for batch, figures in one["batches"].items():
            if "error" in figures:
                rows.append([name, batch, figures["error"], *[None] * 5])
                continue
            other = bare.get(batch, {})
            ratios = [figures[key] / other[key] if other.get(key) else None for key in ("ms", "peak_mib")]
            keys = ("ms", "images_per_second", "share_of_rate", "peak_mib")
            rows.append([name, batch, *(figures[key] for key in keys), *ratios])
    return _table(heads, rows)


def _pipeline(found: Mapping[str, Any], results: Results) -> list[str]:
    rows = [
        [
            name,
            one["batch"],
            workers,
            one["step_ms"],
            figures["whole_step_ms"],
            figures["pipeline_share_of_step"],
        ]
        for name, one in found.items()
        for workers, figures in one["workers"].items()
    ]
    heads = ["model / method", "batch", "workers", "step alone, ms", "with images, ms", "pipeline / step"]
    return _table(heads, rows)


def _costs(found: Mapping[str, Any], results: Results) -> list[str]:
    rows = [
        [
            name,
            part,
            ", ".join(f"{task}: {value:.3g}" for task, value in seconds.items()),
            one["peak_mib"].get(part),
        ]
        for name, one in found.items()
        for part, seconds in one["seconds"].items()
    ]
    return _table(["model / method", "part", "seconds by number of sets", "peak MiB"], rows)


def _real(found: Mapping[str, Any], results: Results) -> list[str]:
    keys = ("faa", "ffm", "pra", "ssp", "images_per_second")
    rows = [
        [name, *("unfinished" if one.get("unfinished") else one[key] for key in keys), one.get("seconds")]
        for name, one in found.items()
    ]
    return _table(["run", "FAA", "FFM", "PRA", "SSP", "images/s", "seconds"], rows)


def _tests(found: Mapping[str, Any], results: Results) -> list[str]:
    rows = [
        [
            name,
            one.get("passed", one.get("summary", "unfinished")),
            "; ".join(one.get("failed", {})) or "none",
        ]
        for name, one in found.items()
    ]
    return _table(["tests", "passed", "failed"], rows)


_TABLES = {
    "machine": _machine,
    "decisive": _decisive,
    "cells": _cells,
    "agreement": _agreement,
    "training": _training,
    "pipeline": _pipeline,
    "costs": _costs,
    "real": _real,
    "tests": _tests,
}
