"""The functions of lw2g that read what runs have left: runs, report, verify.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from lw2g.api.tabular import Report, Runs, Verification
from lw2g.errors import DataError
from lw2g.ground.spelling import expands_paths
from lw2g.registry.catalogue import load_catalogue
from lw2g.results import MIXABLE
from lw2g.results.columns import chosen_columns, further_columns
from lw2g.results.found_runs import find_runs

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["MIXABLE", "report", "runs", "verify"]


@expands_paths
def runs(directory: str | Path = "runs") -> Runs:
    """List the runs in and below a directory, from their records alone, damaged ones included.

    Args:
        directory: The directory.

    Raises:
        DataError: There is no such directory.
    """
    return Runs(list(find_runs([Path(directory)], damaged=True)))


@expands_paths
def verify(run: str | Path) -> Verification:
    """Check the run, or the pack of a store in the directory ``run``.

    It compares every file with its checksum, and every matrix and metric with its value recomputed from the
    stored predictions. It needs no torch.

    Args:
        run: The directory.

    Raises:
        DataError: There is none.
    """
    from lw2g_store import packs

    if packs.is_pack(Path(run)):
        return Verification(packs.verify(Path(run), load_catalogue()))
    from lw2g.results.verification import verify as examine

    return Verification(examine(Path(run)))


@expands_paths
def report(
    *runs: str | Path,
    columns: str | Sequence[str] | None = None,
    against: str | None = None,
    mix: str | Sequence[str] = (),
    unfinished: bool = False,
    store: str | Path | None = None,
) -> Report:
    """Tabulate the runs in and below the given directories, one table per benchmark.

    A row is a configuration, over all its seeds and class orders. Unfinished runs are listed but not counted.
    ``against`` takes a row's label, or a part of it that is unique, and adds differences over pairs of equal
    seed and class order, with 95 % intervals.

    Args:
        *runs: The directories.
        columns: Columns in their order, in a list or with commas; ``all`` for all of them; None for the
            usual ones.
        against: Row that paired differences refer to.
        mix: What one table may mix, although such rows are not comparable: ``checkpoints``, ``splits``,
            ``protocols``; a list for several.
        unfinished: Whether unfinished runs get rows of their own, up to their last task.
        store: A checkout of a store: rows of others under the same protocol, with submitter and badges. What
            of it does not hold is left out and named.

    Raises:
        DataError: There is no run, or no store.
        ConfigError: A column is unknown, or the runs of one table cannot be compared.
    """
    from lw2g.results.table import require_row, tables_of

    found = list(find_runs([Path(run) for run in runs]))
    if not found:
        raise DataError(
            f"no run at or below {', '.join(map(repr, map(str, runs)))}", "give directories of runs"
        )
    catalogue = load_catalogue()
    left_out: Sequence[str] = ()
    if store is not None:
        from lw2g_store.stored import beside

        others, left_out = beside(Path(store), catalogue, found)
        found += others
    chosen = chosen_columns(columns, further_columns([run.record for run in found], catalogue))
    mixed = (mix,) if isinstance(mix, str) else tuple(mix)
    tables = tables_of(found, catalogue, mixed, so_far=unfinished)
    words = ["lw2g", "report", *map(str, runs)]
    if against is not None:
        require_row(tables, against)
        words += ["--against", against]
    if store is not None:
        words += ["--with", str(store)]
    command = shlex.join([*words, "--html", "OUT.html"])
    return Report(tables, chosen, against, catalogue, command, left_out)
