"""The precision of runs that belong together: the first one with ``auto`` settles it, and writes it down."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

from lw2g.disk.contents import read_sealed
from lw2g.disk.protocol import digest_of
from lw2g.disk.sealed import seal_json, write_once
from lw2g.errors import DataError
from lw2g.runtime.precision import PrecisionChoice, choose_precision
from lw2g.vit.backbone import Backbone

__all__ = ["Precision", "settle"]

_DIGITS = 12


@attrs.frozen(kw_only=True)
class Precision:
    """``precision-HASH.json``: what ``auto`` has settled on for a backbone and a kind of device."""

    used: Literal["32-true", "bf16-mixed"]
    reason: str


def settle(backbone: Backbone, device: str, folder: Path | None) -> PrecisionChoice:
    """Settle the precision ``auto`` of a run.

    Args:
        backbone: In float32, on the run's device.
        device: The device that the run asks for.
        folder: What the runs that belong together share; None: the run stands for itself.

    Raises:
        DataError: What the folder holds is damaged.
    """
    if folder is None:
        return choose_precision(backbone)
    # Of one sweep, runs with other weights or on another kind of device are other rows. The GPUs of one
    # machine are one kind.
    shared_by = [backbone.fingerprint.sha256, backbone.image_size, device.partition(":")[0]]
    path = folder / f"precision-{digest_of(shared_by)[:_DIGITS]}.json"
    if not path.exists():
        choice = choose_precision(backbone)
        folder.mkdir(exist_ok=True)
        write_once(path, seal_json({"used": choice.used, "reason": choice.reason}))
    try:
        settled = read_sealed(path, Precision)  # another run may have been the first to write
    except DataError as error:
        raise DataError(error.what, "remove it, and the next run settles the precision anew") from error
    return PrecisionChoice(used=settled["used"], reason=settled["reason"])
