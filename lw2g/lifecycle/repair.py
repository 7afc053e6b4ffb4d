"""Repair of lost or damaged files of predictions, from checkpoints."""

from __future__ import annotations

import hashlib

from lw2g.disk.contents import prediction_name
from lw2g.disk.record import packed
from lw2g.disk.sealed import sha256_of
from lw2g.disk.stored_run import StoredRun
from lw2g.lifecycle.run_opening import reopen
from lw2g.registry.catalogue import Catalogue

__all__ = ["remake_predictions"]


def remake_predictions(run: StoredRun, catalogue: Catalogue) -> list[str]:
    """Compute predictions again whose file does not match its checksum; return one line for each.

    Write them only if they match the checksum.

    Args:
        run: The run, in its newest state.
        catalogue: Where its components come from.
    """
    messages: list[str] = []
    if run.checkpoint is None:
        return messages
    for task, checksum in enumerate(run.checkpoint.ledger["predictions"]):
        name = prediction_name(task)
        if checksum is None:  # no evaluation followed
            continue
        if sha256_of(run.files.path / name) == checksum:
            continue
        made = reopen(run.files.path, catalogue, task).predictions(task)
        # another processor may give other bits: then the file would belong to no record
        if hashlib.sha256(packed(made)).hexdigest() == checksum:
            run.files.write_predictions(task, made)
            messages.append(f"{name} is lost or damaged; written anew from its checkpoint")
        else:
            messages.append(
                f"{name} is lost or damaged, and its checkpoint predicts other bits here; put it back"
            )
    return messages
