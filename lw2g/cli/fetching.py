"""A published data set that a run lacks is fetched by ``lw2g data get``, once the user has agreed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lw2g.api.experiment import Experiment
from lw2g.errors import DataError
from lw2g.runtime.console import note

if TYPE_CHECKING:
    from lw2g.interfaces.dataset import DataSet

__all__ = ["fetch_missing"]


def fetch_missing(context: click.Context, experiment: Experiment, *, agreed: bool) -> None:
    """Fetch the published data set of an experiment where it is not here and one command fetches it.

    Args:
        context: Of the command that runs it.
        experiment: The experiment.
        agreed: Whether the user has agreed already; else a terminal asks.

    Raises:
        DataError: Nobody has agreed, or it cannot be fetched.
    """
    found = experiment.missing_data()
    if found is None:
        return
    data, root = found
    if not data.direct:
        return  # what says that it is missing says how it is fetched by hand
    size = f" ({data.size})" if data.size else ""
    if not agreed:
        agreed = _can_ask() and _asked(data, f"{data.title} is missing: fetch it{size} into {str(root)!r}?")
    if not agreed:
        raise DataError(
            f"{data.title} is missing: no folder {str(root / data.folder)!r}",
            f"--yes fetches it{size}, as `lw2g data get {data.name}` does; or set benchmark.root to the "
            f"folder that holds {data.folder}",
        )
    commands = context.find_root().command
    assert isinstance(commands, click.Group)
    # by its record, as it is typed: the package of data sets is not imported from here
    of_data = commands.get_command(context, "data")
    assert isinstance(of_data, click.Group)
    context.invoke(of_data.commands["get"], name=data.name, root=root)


def _can_ask() -> bool:
    """Return whether somebody sits at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _asked(data: DataSet, question: str) -> bool:
    """Ask the user, who has read the terms."""
    note(f"{data.title}: {data.terms}; {data.page}")
    return click.confirm(question, err=True)
