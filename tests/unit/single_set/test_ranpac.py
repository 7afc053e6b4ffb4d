"""ranpac: what is projected, summed and solved, and what stays as it is after the first task."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from lw2g.blocks.ridge import Ridge
from lw2g.interfaces.phase import ComputePhase
from lw2g.interfaces.pool import Pool
from lw2g_single_set.options import RanPacConfig
from lw2g_single_set.plugin import RANPAC
from lw2g_single_set.ranpac import RandomFeatureRidge

PAIRS = [(0, 1), (2, 3), (4, 5)]
forms = pytest.mark.parametrize("adapt", ["adapter", "vpt-deep", "none"])


def learned(stream, tasks=3, epochs=2, **options):
    """Return baseline and pool after some tasks."""
    baseline, pool = RANPAC.build(RanPacConfig(lr=0.1, **options), stream.build), Pool()
    for index in range(tasks):
        stream.learn(baseline, stream.begin(baseline, pool, index), epochs)
    return baseline, pool


def test_what_is_kept_are_sums(vit_b):
    """Projection and sums have the official shapes; the projection is no state."""
    baseline = RANPAC.build(RanPacConfig(adapt="none", features=70), vit_b())
    assert baseline.closed_form.projection.shape == (768, 70)
    shapes = {name: tuple(value.shape) for name, value in baseline.state_dict().items()}
    classes = baseline.context.num_classes
    assert shapes == {
        "closed_form.count": (classes,),
        "closed_form.gram": (1, 70, 70),
        "closed_form.cross": (classes, 70),
        "closed_form.penalty": (),
    }
    official = {family: values["baseline.features"] for family, values in RANPAC.presets.items()}
    assert set(official.values()) == {10_000}


@forms
def test_only_the_first_task_trains(stream_of, adapt):
    """Later tasks have one phase, which shows features; features of old images keep their bits."""
    stream = stream_of(PAIRS)
    baseline, pool = learned(stream, tasks=1, adapt=adapt, features=40)
    batch = stream.batch([0, 1])
    with torch.no_grad():
        before = baseline.features(batch, pool.route(None))
    assert torch.equal(before, batch.query) == (adapt == "none")
    for index in (1, 2):
        context = stream.begin(baseline, pool, index)
        (phase,) = baseline.phases(context)
        assert isinstance(phase, ComputePhase)
        phase.run(lambda done, total: None)
    with torch.no_grad():
        assert torch.equal(baseline.features(batch, pool.route(None)), before)
    assert len(pool) == 1


@pytest.mark.parametrize("features", [0, 40])
def test_weights_are_those_of_all_images_at_once(stream_of, features):
    """After three tasks logits equal ridge regression on stacked features, projected or as they are."""
    stream = stream_of(PAIRS)
    baseline, pool = learned(stream, adapt="none", features=features)
    batch = stream.batch(range(6))
    rows = batch.query.double()
    if features:
        rows = (rows @ baseline.closed_form.projection).relu()
    eye = torch.eye(rows.shape[1], dtype=torch.float64)
    wanted = functional.one_hot(batch.labels, 6).double()
    weight = torch.linalg.solve(rows.T @ rows + float(baseline.closed_form.penalty) * eye, rows.T @ wanted)
    found = baseline.logits(baseline.features(batch, pool.route(None)))
    torch.testing.assert_close(found, (rows @ weight).float(), rtol=1e-4, atol=1e-4)


def test_the_projection_knows_neither_form_nor_epochs(stream_of):
    """However the first task is learned the projection has the same bits; another seed gives another one."""
    stream = stream_of(PAIRS)
    drawn = [
        learned(stream, tasks=1, epochs=epochs, adapt=adapt, features=9)[0].closed_form.projection
        for adapt, epochs in (("adapter", 0), ("adapter", 2), ("none", 0))
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_errors_of_all_tasks_are_summed_on_request(stream_of):
    """The running choice keeps an error for each candidate, and they only ever grow."""
    stream = stream_of(PAIRS)
    errors = []
    for tasks in (1, 3):
        ridge = learned(stream, tasks=tasks, adapt="none", features=9, penalty="running")[0].closed_form
        errors.append(ridge.errors)
        assert "errors" in ridge.state_dict()
    assert (errors[1] > errors[0]).all()


@pytest.mark.parametrize("width", [0, 40])
@pytest.mark.parametrize("running", [False, True])
def test_its_classifier_is_the_head_ridge_to_the_bit(width, running):
    """What is written out here for readers has state, scores and Gaussians of ``baseline.head=ridge``."""
    torch.manual_seed(7)
    features = torch.randn(60, 12)
    labels = torch.arange(6).repeat_interleave(10)
    own = RandomFeatureRidge(12, 6, width, 5, running=running)
    head = Ridge(12, 6, width, 5, choice="running" if running else "task")
    for first in (0, 30):
        for classifier in (own, head):
            part = slice(first, first + 30)
            classifier.learn(features[part], labels[part], torch.Generator().manual_seed(first))
    kept, theirs = own.state_dict(), head.state_dict()
    assert kept.keys() == theirs.keys()
    for name, value in kept.items():
        assert torch.equal(value, theirs[name]), name
    assert torch.equal(own.scores(features, 6), head.scores(features, 6))
    for one, other in zip(own.class_gaussians(6, 99), head.class_gaussians(6, 99), strict=True):
        assert torch.equal(one, other)
    assert own.class_gaussians(6, 11) is None
