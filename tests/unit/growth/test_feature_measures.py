"""Measures of features and queries on samples made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lw2g.interfaces.evidence import Candidate
from lw2g_growth.class_means import Centroid, Confusion, expected_largest_cosine
from lw2g_growth.options import PlainConfig
from lw2g_growth.separation import LeaveOneOut, LogMe, is_right_left_out, log_evidence
from lw2g_testing.made_evidence import made_sample

PLAIN = PlainConfig()


def generator(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def images(centres, per_class=8, spread=0.05, seed=0, first=0):
    """Labels and queries of classes about some centres, dealt in turn into the groups."""
    centres = torch.as_tensor(centres, dtype=torch.float32)
    numbers = torch.arange(len(centres)).repeat(per_class)
    noise = torch.randn(len(numbers), centres.shape[1], generator=generator(seed))
    return numbers + first, centres[numbers] + spread * noise


def kept_of(measure, *tasks):
    """What a measure stores of tasks that have a set each, given by the centres of their classes."""
    stored = {}
    for task, centres in enumerate(tasks):
        labels, queries = images(centres, seed=task)
        own = Candidate(set=task, tasks=(task,))
        sample = made_sample(labels, candidates=[own], queries=queries, task_to_set=tuple(range(task)))
        stored[task] = measure.store(sample)
    return stored


def asked(measure, new, *tasks, **said):
    """What a measure says of the sets of such tasks when another one arrives."""
    labels, queries = images(new, seed=9)
    candidates = [Candidate(set=task, tasks=(task,)) for task in range(len(tasks))]
    sample = made_sample(
        labels,
        candidates=candidates,
        queries=queries,
        stored=kept_of(measure, *tasks),
        task_to_set=tuple(range(len(tasks))),
        **said,
    )
    return measure.measure(sample)


AXES = (8 * torch.eye(8)).tolist()


def test_a_class_that_was_there_before_has_cosine_one():
    """The set that holds copies of the new classes stands at 1, the other near or below chance."""
    found = asked(Centroid(PLAIN), AXES[:2], AXES[:2], AXES[2:6])
    assert found[0].value == pytest.approx(1.0, abs=0.02)
    assert found[1].value < found[1].null
    assert found[0].error < 0.02


def test_how_alike_the_classes_of_a_set_are():
    """The mean over them of the largest cosine with another of theirs, if negative; one has no other."""
    tasks = ([[3, 1, 0], [-2, 0, 1]], [[0, 2, 2], [1, 3, 0], [0, -1, 2]], [[1, 1, 1]])
    found = asked(Centroid(PLAIN), [[1, 0, 0], [0, 1, 0]], *tasks)
    means = [one["means"].double() for one in kept_of(Centroid(PLAIN), *tasks).values()]
    common = torch.cat(means).mean(0)
    for place in (0, 1):
        rows = means[place] - common
        cosines = torch.cosine_similarity(rows[:, None], rows[None], dim=2)
        others = cosines.masked_fill(torch.eye(len(rows)).bool(), -2)
        assert found[place].own == pytest.approx(float(others.amax(1).mean()), abs=1e-5)
    assert found[0].own < 0
    assert found[2].own is None


def test_what_all_images_share_says_nothing():
    """A common offset of old and new queries, however large, leaves the cosines."""
    offset = [[100 + value for value in row] for row in AXES]
    plain = asked(Centroid(PLAIN), AXES[:2], AXES[2:4], AXES[4:6])
    moved = asked(Centroid(PLAIN), offset[:2], offset[2:4], offset[4:6])
    assert moved[0].value == pytest.approx(plain[0].value, abs=0.01)


@pytest.mark.parametrize(("count", "expected"), [(5, 0.15), (10, 0.19), (50, 0.28), (100, 0.31)])
def test_the_largest_of_many_cosines_grows_with_their_number(count, expected):
    """In 64 dimensions, and as simulated in 16."""
    assert expected_largest_cosine(count, 64) == pytest.approx(expected, abs=0.006)
    draws = torch.nn.functional.normalize(torch.randn(400, count, 16, generator=generator()), dim=2)
    simulated = draws[:, :, 0].amax(dim=1).mean()
    assert expected_largest_cosine(count, 16) == pytest.approx(float(simulated), abs=0.02)


def test_confusion_is_the_share_that_old_tasks_would_take():
    """Classes apart are kept; of classes that are those of an old task about half go there."""
    apart = asked(Confusion(PLAIN), AXES[:2], AXES[2:4], AXES[4:6])
    assert [one.value for one in apart.values()] == [0.0, 0.0]
    assert apart[0].parts == {"kept": 1.0}
    same = asked(Confusion(PLAIN), AXES[2:4], AXES[2:4], AXES[4:6])
    assert 0.2 < same[0].value < 0.8
    assert same[1].value == 0.0
    assert same[0].null == pytest.approx(1 / 3)
    assert same[0].error == pytest.approx(math.sqrt(same[0].value * (1 - same[0].value) / 16))


def test_confusion_asks_the_runs_own_retrieval_which_old_task_it_is():
    """Where an old class wins, the retrieved task gets the image, whatever class it was."""
    found = asked(Confusion(PLAIN), AXES[2:4], AXES[2:4], AXES[4:6], retrieved=torch.ones(16).long())
    assert found[0].value == 0.0
    assert found[1].value > 0.2


def test_a_reused_set_stores_the_classes_of_all_its_tasks():
    """Means are appended with the task they are of."""
    measure = Confusion(PLAIN)
    labels, queries = images(AXES[:2])
    own = Candidate(set=0, tasks=(0,))
    first = measure.store(made_sample(labels, candidates=[own], queries=queries))
    again = made_sample(labels, candidates=[own], queries=queries, stored={0: first}, task_to_set=(0,))
    assert measure.store(again)["tasks"].tolist() == [0, 0, 1, 1]


# -- separation ----------------------------------------------------------------------------------------------


def by_determinant(features, labels):
    """LogME the slow way: the normal density itself, maximised over a grid about the optimum."""
    n = len(labels)
    found = []
    for one in labels.unique():
        y = (labels == one).double().numpy()
        best = -math.inf
        for alpha in np.geomspace(1e-4, 1e6, 81):
            for beta in np.geomspace(1e-1, 1e4, 61):
                cov = np.eye(n) / beta + features.numpy() @ features.numpy().T / alpha
                _, logdet = np.linalg.slogdet(cov)
                value = -(y @ np.linalg.solve(cov, y) + logdet + n * math.log(2 * math.pi)) / 2
                best = max(best, value / n)
        found.append(best)
    return float(np.mean(found))


def test_logme_is_the_density_of_the_labels():
    """Fewer images than dimensions, where the released form is wrong: equal to the log-determinant form."""
    labels = torch.arange(2).repeat(6)
    features = torch.randn(12, 20, generator=generator(), dtype=torch.float64)
    features[:, 0] += 2 * labels
    assert log_evidence(features, labels) == pytest.approx(by_determinant(features, labels), abs=5e-3)


@settings(max_examples=8)
@given(seed=st.integers(0, 99), scale=st.floats(0.1, 10))
def test_logme_knows_no_zero_columns_order_or_scale(seed, scale):
    """Empty dimensions, permuted images and scaled features give the same evidence."""
    labels = torch.arange(3).repeat(5)
    features = torch.randn(15, 6, generator=generator(seed), dtype=torch.float64) + labels[:, None]
    plain = log_evidence(features, labels)
    order = torch.randperm(15, generator=generator(seed))
    wide = scale * torch.cat([features, torch.zeros(15, 9)], dim=1)
    assert log_evidence(wide[order], labels[order]) == pytest.approx(plain, abs=1e-4)


def separation(measure, features, queries, labels):
    """What a measure of separation says of one set."""
    one = Candidate(set=0, tasks=(0,), features=features)
    return measure.measure(made_sample(labels, candidates=[one], queries=queries, task_to_set=(0,)))[0]


@pytest.mark.parametrize("measure", [LogMe(PLAIN), LeaveOneOut(PLAIN)])
def test_features_that_separate_gain_over_those_that_do_not(measure):
    """Signal under the set against noise without it: a gain beyond error and permuted labels; equal: none."""
    labels = torch.arange(4).repeat(10)
    noise = torch.randn(40, 30, generator=generator())
    signal = noise + 3 * torch.nn.functional.one_hot(labels, 30)
    found = separation(measure, signal, noise, labels)
    assert found.value - found.null > 3 * found.error
    assert found.value > found.shuffled
    same = separation(measure, noise, noise, labels)
    assert (same.value, same.error) == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.0, abs=1e-9))


@pytest.mark.parametrize("signal", [1.0, 1.6])
def test_the_error_is_that_of_paired_answers(signal):
    """The deviation of gained and lost images over the root of their number, less where few are left out.

    A stronger signal gains more images than it loses.
    """
    labels = torch.arange(3).repeat_interleave(torch.tensor([9, 12, 20]))
    queries, features = (
        torch.randn(41, 4, generator=generator(seed)) + strength * torch.nn.functional.one_hot(labels, 4)
        for seed, strength in ((3, 1.0), (4, signal))
    )
    one = Candidate(set=0, tasks=(0,), features=features)
    sample = made_sample(labels, candidates=[one], queries=queries, task_to_set=(0,), left_out=0.25)
    under, plain = (is_right_left_out(rows, labels).double().numpy() for rows in (features, queries))
    gained, lost = (under > plain).sum(), (under < plain).sum()
    assert lost > 1
    assert gained > lost + 3 or signal == 1.0
    found = LeaveOneOut(PLAIN).measure(sample)[0]
    assert found.value == pytest.approx(100 * np.mean(under - plain))
    expected = 100 * np.std(under - plain) / math.sqrt(41) / 2
    assert found.error == pytest.approx(expected)


def test_an_image_left_out_of_its_mean_by_hand():
    """Against the plain way, and 100 % of clusters apart; chance of noise is not in-sample accuracy."""
    labels = torch.arange(4).repeat(8)
    features = torch.randn(32, 5, generator=generator(), dtype=torch.float64)
    rows = torch.nn.functional.normalize(features - features.mean(dim=0), dim=1)
    right = []
    for i in range(32):
        others = torch.arange(32) != i
        means = torch.stack([rows[others & (labels == one)].mean(dim=0) for one in range(4)])
        right.append(int((rows[i] - means).norm(dim=1).argmin()) == int(labels[i]))
    assert is_right_left_out(features, labels).tolist() == right
    apart = features + 100 * torch.nn.functional.one_hot(labels, 5)
    assert is_right_left_out(apart, labels).all()
    wide = torch.randn(32, 300, generator=generator(1), dtype=torch.float64)
    assert is_right_left_out(wide, labels).double().mean() < 0.5


def test_what_one_image_or_one_class_cannot_say_is_undefined():
    """One image per class has no other; one class has nothing to be told from."""
    features = torch.randn(8, 5, generator=generator())
    alone = separation(LeaveOneOut(PLAIN), features, features, torch.arange(8))
    assert (alone.value, alone.why) == (None, "no class has two images")
    single = separation(LogMe(PLAIN), features, features, torch.zeros(8).long())
    assert (single.value, single.why) == (None, "there is but one class")
