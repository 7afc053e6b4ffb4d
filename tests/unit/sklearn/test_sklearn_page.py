"""docs/howto/scikit-learn.md."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "scikit-learn.md"


@pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")
def test_the_page_shows_what_happens():
    """Its examples run and print what stands there."""
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0
