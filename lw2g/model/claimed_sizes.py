"""Sizes that a manifest claims, looked at before anything of that size is allocated.

A checksum shows that an export is unchanged, not that lw2g wrote it: a small forged file may claim any
number.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lw2g.errors import DataError
from lw2g.model.manifest import Manifest

__all__ = ["require_borne_out"]

_FEW = 4096
"""Classes and tasks that need no proof: heads that grow as classes come have no row for those to come."""


def require_borne_out(manifest: Manifest, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse a manifest whose numbers its tensors do not bear out.

    A method that makes room for classes or tasks saves a row for each of them.

    Args:
        manifest: What an export says of itself.
        tensors: Its state.
        path: The export.

    Raises:
        DataError: It has no task, claims more classes or tasks than any tensor has rows, or its targets or
            sets are not counted from 0.
    """
    again = "export it anew"
    if not manifest.tasks:
        raise DataError(f"{str(path)!r} has learned no task", again)
    # a dimension of an empty tensor takes no byte of the file and proves nothing
    rows = max((size for value in tensors.values() if value.numel() for size in value.shape), default=0)
    learning = manifest.learning
    claims = {"num_classes": [manifest.num_classes], "num_tasks": [manifest.num_tasks]}
    if learning is not None:
        claims["num_classes"].append(learning.num_classes)
        claims["num_tasks"].append(learning.num_tasks)
    for name, claimed in claims.items():
        if not 0 <= min(claimed) <= max(claimed) <= max(rows, _FEW):
            # by size without its sign: the claim that is refused may be a negative one
            raise DataError(
                f"{str(path)!r} claims {name} = {max(claimed, key=abs)}, and its largest tensor has "
                f"{rows} rows",
                again,
            )
    positions = sum(len(task.class_names) for task in manifest.tasks)
    for number, task in enumerate(manifest.tasks, start=1):
        if task.targets is None:
            continue
        if len(task.targets) != len(task.class_names) or not set(task.targets) <= set(range(positions)):
            raise DataError(f"{str(path)!r}: the targets of task {number} are none of its classes", again)
    sets = set(manifest.task_to_set)
    if manifest.retrieval is not None and sets != set(range(len(sets))):
        raise DataError(f"{str(path)!r}: sets that are chosen from are not counted from 0", again)
    known = manifest.class_map.known
    if known != list(range(len(known))):
        raise DataError(f"{str(path)!r}: a target below {max(known) + 1} has no class", again)
    if learning is not None and not set(learning.numbers) <= set(range(len(learning.names))):
        raise DataError(f"{str(path)!r}: a class has a number that nothing names", again)
    if positions > manifest.num_classes:
        raise DataError(
            f"{str(path)!r} names {positions} classes of tasks and has room for {manifest.num_classes}", again
        )
