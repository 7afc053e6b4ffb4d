"""A run of two processes of which one dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from lw2g.config.resolve import Resolved
from lw2g.registry.catalogue import Catalogue
from lw2g.training.processes.team import ProcessLostError
from lw2g.training.runner import resume, start
from several import FEW, AtEpoch, followers, installed, require_alike


def test_a_process_that_is_killed_ends_the_run(
    catalogue: Catalogue,
    quick: Callable[..., Resolved],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One line says which one and how to go on, none is left behind, and one alone comes to the same end."""
    one, two = tmp_path / "one", tmp_path / "two"
    kill = AtEpoch(1, lambda: os.kill(followers()[0], signal.SIGKILL))
    with installed(tmp_path / "site"), pytest.raises(ProcessLostError) as lost:
        start(quick({**FEW, "run.devices": 2}, policy="min"), catalogue, two, [kill])
    assert str(lost.value) == f"process 2 of 2 ended (killed by SIGKILL); go on: lw2g resume {two}"
    assert capfd.readouterr().err == ""
    assert followers() == []
    records = (start(quick(FEW, policy="min"), catalogue, one), resume(two, catalogue, devices=1))
    require_alike(one, two, records)
