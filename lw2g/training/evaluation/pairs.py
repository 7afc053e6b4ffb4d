"""Features of images under sets: of pairs of both, batch by batch, or under every set at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.pool import BESIDE, Pool
from lw2g.training.devices.engine import Engine
from lw2g.training.images.decoding import chunks
from lw2g.training.images.features import Integers
from lw2g.training.images.image_set import ImageSet

__all__ = ["padded", "pair_features", "rows_of_each"]


def pair_features(
    images: ImageSet,
    positions: Integers,
    sets: Integers,
    session_parts: tuple[Baseline, Pool, Engine],
    size: int,
    advance: Callable[[int, int], None],
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield features of (image, set) pairs, batch by batch, with the positions of the pairs.

    Every forward has the same size, whatever it holds: images of several tasks and sets share batches,
    and only the last one is filled up, so that a pair has the same bits whatever it is computed with.

    Args:
        images: Where the images are.
        positions: The image of each pair, ``[P]``; one may stand there with several sets.
        sets: The set of each pair, ``[P]``, or what answers beside the sets; -1 where nothing is chosen.
        session_parts: The baseline, its pool, and the engine they run on.
        size: Pairs per forward.
        advance: Told how many batches are done, and of how many.
    """
    baseline, pool, engine = session_parts
    parts = chunks(range(len(positions)), size)
    filled = [padded(part, size) for part in parts]

    batches = images.batches([positions[whole].tolist() for whole in filled])
    for number, (part, whole, batch) in enumerate(zip(parts, filled, batches, strict=True)):
        chosen = None if sets[whole[0]] == -1 else torch.from_numpy(sets[whole])
        # sets that no image gets are left out where they cannot matter: gathering them costs
        alone = baseline.feature_scope != "pool"
        routing = pool.route(chosen, alone=alone, beside=baseline.beside()).to(engine.device)
        with engine.autocast():
            features = baseline.features(batch, routing).float()
        yield part, features[: len(part)]
        advance(number + 1, len(parts))


def rows_of_each(
    baseline: Baseline,
    pool: Pool,
    batch: Batch,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Tensor:
    """Return features of a batch under every live set and what answers beside them, ``[B, K, F]`` float32.

    Args:
        baseline: One whose sets all answer.
        pool: Its sets.
        batch: The images.
        autocast: Gives the precision that forwards run in.
    """
    rows = []
    for member in (*pool.ids, *(BESIDE - number for number in range(len(baseline.beside())))):
        # a choice per image, as in an evaluation, so that the bits are the same
        chosen = torch.full((len(batch),), member, device=baseline.context.device)
        with autocast():
            rows.append(baseline.features(batch, pool.route(chosen, alone=True, beside=baseline.beside())))
    return torch.stack([one.float() for one in rows], dim=1)


def padded(part: list[int], size: int) -> list[int]:
    """Return positions filled up to a batch of one size, with the first of them."""
    return part + [part[0]] * (size - len(part))
