"""Class orders, task sizes and split names."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lw2g.errors import ConfigError
from lw2g_benchmarks.options import ORDERS, OrderOptions
from lw2g_benchmarks.orders import class_order, ordered, parse_split_name, task_sizes


@pytest.mark.parametrize(
    ("order", "classes", "seed", "prefix"),
    [
        ("natural", 100, 7, (0, 1, 2, 3)),
        ("seeded", 100, 1993, (68, 56, 78, 8, 23, 84, 90, 65, 74, 76)),
        ("seeded", 200, 1993, (168, 136, 51, 9, 183, 101)),
        ("seeded", 300, 1993, (169, 221, 146, 296, 92, 229)),
        ("seeded", 196, 1993, (59, 134, 162, 9, 42, 72)),
        ("seeded", 345, 1993, (214, 80, 343, 268, 224, 97)),
        ("seeded", 1000, 1993, (54, 7, 894, 512, 126, 337)),
        ("seeded", 100, 87, (16, 81, 85, 32, 39, 25)),
        ("seeded", 100, 1013, (42, 36, 34, 41, 25, 29)),
        ("seeded", 200, 87, (32, 145, 180, 80, 12, 125)),
        ("seeded", 200, 1013, (90, 41, 176, 4, 74, 155)),
        ("shuffled", 100, 0, (0, 1, 2, 3)),
        ("shuffled", 100, 1, (53, 37, 65, 51, 4, 20, 38)),
        ("shuffled", 100, 2, (0, 76, 61, 63, 1, 71)),
    ],
)
def test_known_orders(order, classes, seed, prefix):
    """The orders of the literature start as published."""
    assert class_order(order, classes, seed)[: len(prefix)] == prefix


@given(st.sampled_from(ORDERS), st.integers(1, 60), st.integers(0, 2**31))
def test_orders_are_permutations_and_leave_global_generators_alone(order, classes, seed):
    """Every order is a permutation, repeats for its seed, and touches no global generator."""
    before = random.getstate(), np.random.get_state()[1].tolist()
    first = class_order(order, classes, seed)
    assert sorted(first) == list(range(classes))
    assert class_order(order, classes, seed) == first
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_a_list_gives_the_order_by_names_or_numbers():
    """Names count before numbers; each class is named once."""

    def of(*wanted, some=False):
        return ordered(OrderOptions(class_order=wanted), ["b", "a", "0"], some=some)

    assert of("a", "0", "b") == of(1, 2, "b") == (1, 2, 0)
    assert of("a", some=True) == (1,)
    for wanted, message in (
        (("a",), "benchmark.class_order leaves out 2 of 3 classes: b, 0"),
        (("a", "1", "b"), "repeats 'a'"),
        (("a", "3", "b"), "first '3'"),
    ):
        with pytest.raises(ConfigError, match=message):
            of(*wanted)


def test_unknown_order_is_refused():
    """An order that does not exist is named."""
    with pytest.raises(ValueError, match="expected an order among"):
        class_order("random", 10, 0)


@given(st.integers(1, 40), st.integers(1, 40))
def test_task_sizes_cover_the_classes(increment, classes):
    """Sizes add up, all but the last are the increment, and uneven splits need leave."""
    if classes % increment == 0:
        assert task_sizes(classes, increment) == (increment,) * (classes // increment)
    else:
        sizes = task_sizes(classes, increment, uneven=True)
        assert sum(sizes) == classes
        assert set(sizes[:-1]) <= {increment}
        assert 0 < sizes[-1] < increment
        told = f"increment: {increment} does not split {classes}.*smaller; give 'benchmark.uneven': True"
        if increment > classes:
            # all classes in one task are no uneven tasks
            told = f"increment: {increment} is larger than .* classes, {classes}; choose [0-9, of]+.*$"
        with pytest.raises(ConfigError, match=told) as offered:
            task_sizes(classes, increment)
        # whatever is offered splits the classes, and most methods take it
        choices = re.search(r"choose (one of )?(\d+(?:, \d+)*)", str(offered.value))
        numbers = re.findall(r"\d+", choices[2])
        assert (choices[1] is None) == (len(numbers) == 1)
        assert numbers
        alone = " (or 1, if the method learns single classes)" in str(offered.value)
        assert alone == (classes > 1)  # the benchmark does not know the method
        for number in map(int, numbers):
            assert set(task_sizes(classes, number)) == {number}
            assert number > 1 or classes == 1
        assert ("'benchmark.uneven': True" in str(offered.value)) == (classes > 2)
        with pytest.raises(ConfigError) as refused:
            task_sizes(classes, increment, uneven=None)
        assert "uneven" not in str(refused.value)


@pytest.mark.parametrize(
    ("classes", "base", "increment", "tasks"), [(1000, 100, 6, 151), (1000, 100, 3, 301), (1000, 0, 10, 100)]
)
def test_a_base_makes_the_first_task_longer(classes, base, increment, tasks):
    """The long streams of the literature have the tasks that they are said to have."""
    sizes = task_sizes(classes, increment, base=base)
    assert (len(sizes), sum(sizes), sizes[0]) == (tasks, classes, base or increment)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CIFAR(Inc10Task10)", ("CIFAR", 10, 10)),
        ("IMR(INC20TASK10)", ("IMR", 20, 10)),
        ("omni(inc5task60)", ("omni", 5, 60)),
        ("5-Datasets(Inc10Task5)", ("5-Datasets", 10, 5)),
    ],
)
def test_split_names_are_read(name, expected):
    """Split names are read in any letter case."""
    split = parse_split_name(name, expected[1] * expected[2])
    assert (split.dataset, split.increment, split.tasks) == expected


@pytest.mark.parametrize(
    "name", ["CIFAR", "CIFAR(Inc10)", "CIFAR(Inc0Task10)", "CIFAR(Inc10Task10) ", "(Inc1Task1)"]
)
def test_malformed_split_names_are_refused(name):
    """A name of another form is refused with an example."""
    with pytest.raises(ConfigError, match=r"write it like 'CIFAR\(Inc10Task10\)'"):
        parse_split_name(name)


def test_split_name_must_fit_the_data_set():
    """N x M must be the number of classes, and the message has both numbers."""
    with pytest.raises(ConfigError, match="means 100 classes but the data set has 200"):
        parse_split_name("CUB(Inc10Task10)", 200)
