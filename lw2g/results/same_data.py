"""Which runs have the same data: by split, by what was set of the data, and by the images themselves."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lw2g.config.describe import plain
from lw2g.disk.protocol import digest_of
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import ReportedRun
from lw2g.results.row_names import TABLE_OPTIONS, settings_of
from lw2g.results.run_draws import order_draws_tests

__all__ = ["options_apart", "sizes_apart", "split_names"]

_SPLIT = "benchmark.split"
_SIZES = ("benchmark.shots", "benchmark.train_per_class")
"""The options that choose how many training images there are, and no test image."""
_LONGEST = 30
"""The characters of an option that a sentence has room for."""
Images: TypeAlias = dict[tuple[int, ...], set[str]]
"""Fingerprints of data by class orders, which they cover: under the same order alone they compare images."""


def split_names(runs: Sequence[ReportedRun], catalogue: Catalogue) -> Callable[[ReportedRun], str]:
    """Return a function that names a run's split: the same for all class orders of the same data.

    Where the runs of a split have different data, the name ends in the options that chose them, such as
    ``shots 3``; where equal options have brought different images, in the beginning of their fingerprint.
    Runs that differ in the number of their training images alone have these options as a name.

    Args:
        runs: All runs that are told apart.
        catalogue: Knows which options draw.
    """
    is_of_sizes = bool(sizes_apart(runs, catalogue))
    of_split: dict[str, list[ReportedRun]] = defaultdict(list)
    for run in runs:
        of_split[_split_name(run)].append(run)
    names: dict[int, str] = {}
    for split, of_one in of_split.items():
        parts = _parts(of_one, catalogue)
        for part, options in zip(parts, _told_apart([part[0] for part in parts], catalogue), strict=True):
            name = ", ".join(options if is_of_sizes else [split, *options])
            several = any(len(found) > 1 for found in _images_of(part).values())
            tested = {_tested_images(run) for run in part} - {""}
            for run in part:
                names[id(run)] = name
                if several:
                    names[id(run)] = f"{name} {run.record['fingerprints']['benchmark'][:8]}"
                elif len(tested) > 1:
                    names[id(run)] = f"{name} {_tested_images(run)}".strip()

    def name_of(run: ReportedRun) -> str:
        """Return the name of the split of one of these runs."""
        return names[id(run)]

    return name_of


def sizes_apart(runs: Sequence[ReportedRun], catalogue: Catalogue) -> list[str]:
    """Return the options in which runs differ, if they differ in the number of training images alone.

    Args:
        runs: Those of a table.
        catalogue: Knows which options draw.

    Returns:
        The names of the options, such as ``shots``; empty where anything else differs, or where the records
        do not tell that the test images are the same.
    """
    tested = {tuple(sorted(run.record.get("image_hashes") or ())) for run in runs}
    if len(tested) != 1 or () in tested or len(set(map(_split_name, runs))) > 1:
        return []
    parts = _parts(runs, catalogue)
    # equal options that brought different images are no matter of number
    if any(len(found) > 1 for part in parts for found in _images_of(part).values()):
        return []
    differing = _differing([_data_options(part[0], catalogue) for part in parts])
    if not set(differing) <= set(_SIZES):
        return []
    return [key.removeprefix("benchmark.") for key in differing]


def options_apart(runs: Sequence[ReportedRun], catalogue: Catalogue) -> list[str]:
    """Return by which options of their data runs differ, a text for each; nothing where these do not tell.

    Args:
        runs: A run of each table.
        catalogue: Knows which options draw.
    """
    texts = [", ".join(options) for options in _told_apart(runs, catalogue)]
    return texts if all(texts) and len(set(texts)) == len(texts) else []


def _parts(runs: Sequence[ReportedRun], catalogue: Catalogue) -> list[list[ReportedRun]]:
    """Return the runs of one split apart by the options of their data.

    Options that bring the same images in a class order that runs share are no other data.
    """
    by_options: dict[str, list[ReportedRun]] = defaultdict(list)
    for run in runs:
        by_options[json.dumps(_data_options(run, catalogue), sort_keys=True)].append(run)
    parts: list[list[ReportedRun]] = []
    for group in by_options.values():
        images = _images_of(group)
        same = next((part for part in parts if _are_same(images, _images_of(part))), None)
        if same is None:
            parts.append(group)
        else:
            same += group
    return parts


def _are_same(images: Images, others: Images) -> bool:
    """Whether runs of these fingerprints share a class order, and have equal images in each such one."""
    common = images.keys() & others.keys()
    return bool(common) and all(images[order] & others[order] for order in common)


def _images_of(runs: Sequence[ReportedRun]) -> Images:
    images: Images = defaultdict(set)
    for run in runs:
        images[tuple(run.record["class_order"])].add(run.record["fingerprints"]["benchmark"])
    return images


def _data_options(run: ReportedRun, catalogue: Catalogue) -> Mapping[str, Any]:
    """Return the options of a run's data, by dotted keys, but what draws, and what names the split."""
    options = {}
    for key, value in settings_of(run, catalogue).values.items():
        if key.startswith("benchmark.") and key not in (*TABLE_OPTIONS, _SPLIT):
            options[key] = value
    return options


def _told_apart(runs: Sequence[ReportedRun], catalogue: Catalogue) -> Iterator[list[str]]:
    """Yield for each run the options of its data in which not all of these runs agree."""
    all_options = [_data_options(run, catalogue) for run in runs]
    differing = _differing(all_options)
    for options in all_options:
        told = [f"{key.removeprefix('benchmark.')} {plain(options.get(key))}" for key in differing]
        yield [text for text in told if len(text) <= _LONGEST]


def _differing(all_options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the dotted keys of options that do not all have one value."""
    differing = []
    for key in dict.fromkeys(key for options in all_options for key in options):
        if len({plain(options.get(key)) for options in all_options}) > 1:
            differing.append(key)
    return differing


def _tested_images(run: ReportedRun) -> str:
    """Return a short hash of the tested images of a run on one's own data, in whichever order they come.

    Empty where its record has no hashes of them, or the seed of its order draws them.
    """
    hashes = run.record.get("image_hashes")
    if not hashes or "benchmark.title" not in run.options or order_draws_tests(run):
        return ""
    return digest_of(sorted(set(hashes)))[:8]


def _split_name(run: ReportedRun) -> str:
    classes = json.dumps(sorted(run.record["class_names"]))
    named = run.options.get(_SPLIT) or "only"
    return f"split {named} of classes {hashlib.sha256(classes.encode()).hexdigest()[:8]}"
