"""What features of several layers cost: their width, memory for heads on them, and time to solve one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from lw2g.errors import ConfigError, is_out_of_memory
from lw2g.ground.free_memory import memory_of, require_memory
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.head import heads_within
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.interfaces.scope import BACKBONE
from lw2g.maths.few_rows import FewRows
from lw2g.vit.backbone import Backbone

__all__ = ["layer_notes", "require_layers_read", "with_room"]

_PARTS = {"token": "class tokens", "avg": "means of patches", "both": "class tokens and means of patches"}
_REMEDY = "lower backbone.layers, set backbone.pool=token, or use another head such as cosine"
_TIMED = 512
"""Side of the matrix whose eigenvalues are timed."""
_COPIES = 2
"""Copies of the largest matrix of sums while it is solved: what is factored, and its factor."""
_NEAR = 0.5
"""The share of the memory from which on a user is told what sums take."""
_LITTLE = 2**26
"""Bytes of sums below which nobody is told of them."""
_LONG = 60.0
"""Seconds of solving from which on a user is told of them."""


@contextmanager
def with_room(backbone: Backbone, what: str) -> Iterator[None]:
    """Refuse heads, built within the block, for which features of several layers are too wide.

    Args:
        backbone: Makes the features.
        what: Whose heads, for the message.

    Raises:
        ConfigError: Their sums do not fit into memory.
    """
    try:
        yield
    except RuntimeError as error:
        # with features of one layer, running out of memory is no matter of their width
        if not backbone.joins or not is_out_of_memory(error):
            raise
        raise ConfigError(
            f"backbone.layers: features of {backbone.width:,} numbers are too wide for what {what} keeps of "
            "them in memory",
            _REMEDY,
        ) from error


def require_layers_read(
    backbone: Backbone, baseline: Baseline, retrieval: RetrievalStrategy | None, name: str
) -> None:
    """Refuse features of several layers that nothing reads, that cannot be made, or whose sums are too large.

    Args:
        backbone: Makes the features.
        baseline: The method.
        retrieval: What chooses its sets; None without.
        name: The baseline, as messages name it.

    Raises:
        ConfigError: No part of the model reads them, the retrieval cannot be given them, or sums over them do
            not fit into memory.
    """
    if not backbone.joins:
        return
    if retrieval is not None and not retrieval.query_norm:
        raise ConfigError(
            f"the retrieval of {name} reads class tokens before the final norm, and features of several "
            "layers have none",
            "set backbone.layers=1 and leave backbone.pool out, or name another retrieval",
        )
    reads = baseline.closed_form is not None or baseline.frozen_expert is not None
    if not reads and retrieval is None and baseline.scope != BACKBONE:
        raise ConfigError(
            f"the trained head of {name} reads the last layer alone, and nothing else reads several",
            "set backbone.layers=1 and leave backbone.pool out, or set baseline.head=ridge where it is an "
            "option",
        )
    kept, side = _sums((baseline, retrieval))
    require_memory(
        kept + _COPIES * 8 * side**2,
        f"backbone.layers: what {name} keeps of features of {backbone.width:,} numbers",
        _REMEDY,
        backbone.device,
    )


def layer_notes(
    backbone: Backbone, baseline: Baseline, retrieval: RetrievalStrategy | None, name: str, images: int
) -> tuple[list[str], list[str]]:
    """Return what a user should know of features of several layers before they are computed, and details.

    What they cost is a detail unless memory gets short or solving takes long, and not told where it is
    little. Of one layer both are empty.

    Args:
        backbone: Makes the features.
        baseline: The method.
        retrieval: What chooses its sets; None without.
        name: The baseline, as messages name it.
        images: How many will have been learned in the end.
    """
    if not backbone.joins:
        return [], []
    known = backbone.fingerprint
    layers = "1 layer" if known.layers == 1 else f"{known.layers} layers"
    text = f"features of {layers}, {_PARTS[known.pool]}: {backbone.width:,} numbers an image"
    kept, side = _sums((baseline, retrieval), images)
    more = _COPIES * 8 * side**2
    seconds = 0.0
    if kept + more >= _LITTLE:
        seconds = _seconds(side) if side else 0.0
        text += (
            f"; the head's sums take up to {_mebibytes(kept)} of memory, solving them {_mebibytes(more)} more"
        )
    there = memory_of(backbone.device)
    is_near = there is not None and kept + more > _NEAR * there
    # a detail has no seconds: measured anew, it would not be that of the run that is resumed
    notes, details = [], [text]
    if is_near or seconds >= _LONG:
        notes, details = [f"{text}, at most about {seconds:,.0f} s at a time"], []
    if baseline.closed_form is None and baseline.scope != BACKBONE:
        notes.append(
            f"the trained head of {name} reads the last layer alone; several layers are read of un-prompted "
            "features only"
        )
    return notes, details


def _sums(modules: Sequence[nn.Module | None], images: int | None = None) -> tuple[int, int]:
    """Return the bytes of all sums of heads, and the side of their largest square matrix; 0 without one.

    Args:
        modules: What has heads.
        images: How many will have been learned in the end: few stand there as rows. None for any number.
    """
    kept = 0
    side = 0
    counted: set[int] = set()
    for module in modules:
        if module is None:
            continue
        for part in module.modules():
            if not isinstance(part, FewRows):
                continue
            width = part.rows.shape[1]
            if images is not None and part.has_room(images - len(part.rows)):
                # their products with each other are solved
                kept += (images - len(part.rows)) * width * part.rows.element_size()
                side = max(side, images)
            else:
                # with many images their sums stand there
                kept += part.bytes_of_sums
                side = max(side, width)
        for head in heads_within(module):
            for sums in head.buffers():
                if id(sums) in counted:  # of a head within a head
                    continue
                counted.add(id(sums))
                kept += sums.nbytes
                if sums.numel() and sums.ndim >= 2 and sums.shape[-1] == sums.shape[-2]:
                    side = max(side, sums.shape[-1])
    return kept, side


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _seconds(side: int) -> float:
    """Return how long all eigenvalues of a matrix take here, the most that a head computes of its sums."""
    matrix = torch.eye(_TIMED, dtype=torch.float64) + 1 / _TIMED
    start = time.perf_counter()
    torch.linalg.eigh(matrix)
    # the cube of the side, as of every solver of dense matrices
    return (time.perf_counter() - start) * (side / _TIMED) ** 3
