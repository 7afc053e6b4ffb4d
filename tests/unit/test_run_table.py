"""The script that prints tables of runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "run_table.py"


def test_rows_of_two_protocols_make_no_table() -> None:
    """One protocol is fine; two are refused with the rows that differ and the way out."""
    require_one_protocol = runpy.run_path(str(SCRIPT))["require_one_protocol"]
    equal, official = [{"protocol": "like-for-like"}], [{"protocol": "official"}]
    require_one_protocol({"a": equal, "b": equal * 2})
    with pytest.raises(SystemExit) as caught:
        require_one_protocol({"a": equal, "b": official})
    assert str(caught.value) == (
        "the rows mix protocols (a: like-for-like, b: official); "
        "name one by --protocol, or say --mix-protocols"
    )
