"""Notes as a program hears them that imports lw2g."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def notes(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Return what is logged, also where an earlier test ran a command, which keeps notes to itself."""
    # the oldest pytest that is supported hears loggers alone that pass on what they are told
    monkeypatch.setattr(logging.getLogger("lw2g.progress"), "propagate", True)
    return caplog
