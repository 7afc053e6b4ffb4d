"""Checks of metrics: lw2g's own pass them, broken ones fail the one they break."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from broken_components import Broken
from lw2g.interfaces.metric import CORE_METRICS, Metric
from lw2g_testing import metric_checks


def metric(name: str, compute: Any) -> Metric:
    return Metric(name=name, summary="for tests", needs=("accuracy",), compute=compute)


BROKEN = Broken(metric)
breaks = BROKEN.breaks


@breaks("is_a_number_or_none", "finite number, or None .* of a run of 1 tasks .*expected a finite number")
def mean_of_everything(accuracy):
    return accuracy[:, 1:].mean() if len(accuracy) > 1 else float("nan")


@breaks("is_a_number_or_none", "of a run of 1 tasks .*IndexError")
def second_task(accuracy):
    return accuracy[1, -1]


@breaks("is_a_number_or_none", "ValueError.*read-only")
def doubles_in_place(accuracy):
    accuracy *= 2
    return accuracy[0, 0]


@breaks("is_a_number_or_none", "draw nothing at random")
def bootstrap(accuracy):
    return float(np.random.default_rng().random())


test_broken_ones_fail, test_every_check_is_broken, test_sane_ones_pass = BROKEN.tests(
    "metric", lambda accuracy: accuracy[:, -1].mean()
)


@pytest.mark.parametrize("name", CORE_METRICS)
def test_lw2gs_own_metrics_are_defined_where_what_they_need_is_known(name: str) -> None:
    """Of several tasks with everything known, each is a number."""
    (inputs,) = [one for said, one in metric_checks._runs() if said.startswith("a run of 3 tasks with a")]
    assert CORE_METRICS[name].of(inputs) is not None
