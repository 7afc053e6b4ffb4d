"""Reports of start, learn, unlearn and test."""

from __future__ import annotations

import pytest

import lw2g
from lw2g_photos.step_reports import StepReport


def test_a_key_that_a_report_lacks_is_told_with_the_nearest_or_all() -> None:
    """As of the record of a run; what asks whether a key is there is not disturbed."""
    report = StepReport({"accuracy": 1.0, "out": "m"}, "a line")
    with pytest.raises(KeyError, match=r"the report has no 'acc' \(did you mean 'accuracy'\?\)"):
        _ = report["acc"]
    with pytest.raises(KeyError, match=r"the report has no 'zzz'; it has accuracy, out"):
        _ = report["zzz"]
    assert report.get("acc") is None
    assert "acc" not in report


@pytest.mark.parametrize("name", ["start", "learn", "unlearn", "test"])
def test_what_is_returned_is_annotated_as_what_it_is(name: str) -> None:
    """Its ``line`` is known to a type checker and to an editor."""
    assert "StepReport" in getattr(lw2g, name).__annotations__["return"]
