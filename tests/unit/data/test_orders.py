"""Class orders with like and unlike neighbours."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.data.orders import adjacent_similarity, order_by_similarity

SIZES = (2, 2, 2, 2)


def test_found_orders_are_extremes_of_swaps():
    """Both are permutations that no swap improves; planted pairs of alike tasks stay neighbours, or part."""
    draw = np.random.default_rng(0)
    means = np.repeat(draw.normal(size=(2, 16)), 4, axis=0) + 0.1 * draw.normal(size=(8, 16))
    found = {alike: order_by_similarity(means, SIZES, alike=alike) for alike in (True, False)}
    value = {alike: adjacent_similarity(means[order], SIZES) for alike, order in found.items()}
    kinds = {alike: [row // 4 for row in order] for alike, order in found.items()}
    assert value[False] < -0.9 < 0.3 < value[True]
    assert kinds[True] in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)
    assert kinds[False] in ([0, 0, 1, 1] * 2, [1, 1, 0, 0] * 2)
    for alike, order in found.items():
        assert sorted(order) == list(range(8))
        for one in range(8):
            for other in range(one):
                swapped = list(order)
                swapped[one], swapped[other] = swapped[other], swapped[one]
                change = adjacent_similarity(means[swapped], SIZES) - value[alike]
                assert change <= 1e-9 if alike else change >= -1e-9
    with pytest.raises(ValueError, match="at least two tasks"):
        order_by_similarity(means, (8,), alike=True)


def test_the_command_prints_a_configuration(tmp_path):
    """A run takes it; a stream in which classes come again is refused in one line."""
    done = CliRunner().invoke(main, ["data", "order", "digits", "dissimilar"])
    assert done.exit_code == 0, done.output
    assert sorted(tomllib.loads(done.stdout)["benchmark"]["class_order"]) == [str(n) for n in range(10)]
    file = tmp_path / "order.toml"
    CliRunner().invoke(main, ["data", "order", "digits", "dissimilar", "--out", str(file)])
    assert file.read_text() == done.stdout
    assert CliRunner().invoke(main, ["config", str(file)]).exit_code == 0
    again = ["--set", "benchmark.stream=repetition"]
    refused = CliRunner().invoke(main, ["data", "order", "digits", "similar", *again])
    assert refused.exit_code == 2
    assert "error: only disjoint tasks of classes have such an order" in refused.output
