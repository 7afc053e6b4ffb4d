"""What is said of a root that the folder benchmark cannot read, and the command for what it holds instead."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from lw2g.plugin import DataError, counted, find_images, is_hidden, split_folder, splits_in
from lw2g_benchmarks.folder_crops import SPLIT_FOLDERS

__all__ = ["as_root", "has_splits", "holding_splits", "lacking", "layout_of"]


def layout_of(root: Path | str, *, drawn: bool) -> str:
    """Return what is expected below a folder, with test images that are drawn or lie apart."""
    if drawn:
        return f"expected {root}/<class>/<image>"
    return f"expected {root}/train/<class>/<image> and {root}/test/<class>/<image>"


def lacking(root: Path, missing: Sequence[str]) -> DataError:
    """Return the error of a root without train/ or test/, with the command for what it holds instead."""
    entries = sorted(entry for entry in root.iterdir() if not is_hidden(entry.name))
    folders = [entry for entry in entries if entry.is_dir()]
    lacks = " and ".join(f"{split}/" for split in missing)
    what = f"{str(root.absolute())!r} lacks {lacks}"
    above = root.absolute().parent
    if root.absolute().name.lower() in SPLIT_FOLDERS and has_splits(above):
        return DataError(
            f"{what}, and is itself a split of {str(above)!r}",
            as_root(root.parent),
        )
    if folders and all(has_splits(folder) for folder in folders):
        return DataError(
            f"{what}, but each of its {len(folders)} folders has both ({folders[0].name!r} ...)",
            "if they are domains: --set benchmark.stream=domains; if one is the root: " + as_root(folders[0]),
        )
    below = [inner for folder in folders for inner in sorted(folder.iterdir()) if has_splits(inner)]
    if below:
        return DataError(
            f"{what}, but {counted(len(below), 'folder')} further down {'have' if len(below) > 1 else 'has'} "
            f"both ({str(below[0].relative_to(root))!r} ...)",
            f"name one of them: {as_root(below[0])}",
        )
    splits = splits_in(root)
    if len(splits) > 1:
        return holding_splits(splits, f"{what}:")
    classes = [folder for folder in folders if find_images(folder).paths]
    if len(missing) == len(SPLIT_FOLDERS) and classes:
        return DataError(
            f"{what}, but holds {counted(len(classes), 'folder')} of images ({classes[0].name!r} ...)",
            "to draw the test images from each: --set benchmark.test_share=0.2; for a model without a "
            f"study: `lw2g start {shlex.quote(str(root))} MODEL` with the same --backbone and --weights",
        )
    found = ", ".join(repr(entry.name) for entry in entries[:5]) or "nothing"
    return DataError(f"{what} (found {found})", layout_of(root, drawn=False))


def holding_splits(splits: Sequence[Path], what: str) -> DataError:
    """Return the error of a root whose folders are splits of other names, which would be learned as classes.

    Args:
        splits: The folders, training first.
        what: The root, and what else is wrong.
    """
    named = " and ".join(f"{split.name}/" for split in splits)
    return DataError(
        f"{what} holds {named} and no classes",
        f"rename them train/ and test/, or to draw the test images: {as_root(splits[0])} "
        "--set benchmark.test_share=0.2",
    )


def as_root(folder: Path) -> str:
    """Return the option that makes a folder the root, as one types it."""
    return f"--set benchmark.root={shlex.quote(str(folder))}"


def has_splits(folder: Path) -> bool:
    """Whether train/ and test/ lie in a folder, however they are capitalised."""
    return all(split_folder(folder, split).is_dir() for split in SPLIT_FOLDERS)
