"""Threads: one for small products, as many as torch has for all others."""

import math
from types import SimpleNamespace

import pytest
import torch

from lw2g.lifecycle.estimate import estimate
from lw2g.lifecycle.rehearsal import Rehearsal
from lw2g.lifecycle.runner import resume, start
from lw2g.model.saved import open_model
from lw2g.runtime import threads
from lw2g.runtime.threads import largest_product, suited_threads
from lw2g.vit.backbone import Backbone
from lw2g_testing.tiny import tiny_backbone

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _two_threads():
    """Let torch have two threads, and put its number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def shared(monkeypatch):
    """Call the tiny backbone's products large enough to be shared."""
    monkeypatch.setattr(threads, "_WORTH_SHARING", largest_product(tiny_backbone()))


def test_the_largest_product_is_that_of_the_mlp():
    """32 images of 5 tokens, from 32 columns to 128."""
    assert largest_product(tiny_backbone()) == 2 * 32 * 5 * 32 * 128
    assert largest_product(SimpleNamespace(num_tokens=0)) == math.inf


def test_small_products_get_one_thread_and_the_number_comes_back():
    """Within the context alone, and after an error in it."""
    with suited_threads(tiny_backbone(), CPU):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyError), suited_threads(tiny_backbone(), CPU):
        raise KeyError
    assert torch.get_num_threads() == 2


def test_large_products_keep_their_threads(shared):
    """The tiny backbone is at the limit here."""
    with suited_threads(tiny_backbone(), CPU):
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("width", "expected"), [(12_499, 1), (12_500, 2)])
def test_the_limit_is_a_hundred_million_operations(width, expected):
    """32 images of 125 tokens: a product of that size is shared, and the next smaller one is not."""
    backbone = SimpleNamespace(num_tokens=125, model=torch.nn.Linear(1, width))
    assert (largest_product(backbone) < 100e6) == (expected == 1)
    with suited_threads(backbone, CPU):
        assert torch.get_num_threads() == expected


def test_a_gpu_s_run_keeps_its_threads():
    """Below the limit, too: its processor decodes images."""
    with suited_threads(tiny_backbone(), torch.device("cuda", 0)):
        assert torch.get_num_threads() == 2


def test_a_run_and_its_continuation_compute_on_one_thread_and_say_so(catalogue, quick, tmp_path):
    """The caller's number is what it was, after each of them."""
    resolved = quick(policy="always")
    record = start(resolved, catalogue, tmp_path / "run", tasks=1)
    assert record["environment"]["threads"] == 1
    assert torch.get_num_threads() == 2
    (tmp_path / "run" / "goal.json").unlink(missing_ok=True)
    assert resume(tmp_path / "run", catalogue)["environment"]["threads"] == 1
    assert torch.get_num_threads() == 2


def test_a_run_with_larger_products_says_how_many_it_had(catalogue, quick, tmp_path, shared):
    """Two here."""
    record = start(quick(policy="always"), catalogue, tmp_path / "run", tasks=1)
    assert record["environment"]["threads"] == 2


def test_an_opened_model_answers_on_as_many_threads_as_its_run(catalogue, quick, tmp_path, monkeypatch):
    """One for small products, and the caller's number afterwards."""
    start(quick(policy="always"), catalogue, tmp_path / "run", tasks=1)
    model = open_model(tmp_path / "run", catalogue)
    seen = []
    features = Backbone.features

    def noting(self, *arguments, **options):
        seen.append(torch.get_num_threads())
        return features(self, *arguments, **options)

    monkeypatch.setattr(Backbone, "features", noting)
    images = [torch.zeros(3, 16, 16, dtype=torch.uint8)]
    one = model.features(images)
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2
    monkeypatch.setattr(threads, "_WORTH_SHARING", 0)
    torch.testing.assert_close(model.features(images), one)
    assert set(seen) == {1, 2}


def test_an_estimate_has_as_many_threads_as_the_run(catalogue, quick, monkeypatch):
    """Its seconds are those of one thread."""
    seen = []
    measure = Rehearsal.measure

    def noting(self, index):
        seen.append(torch.get_num_threads())
        return measure(self, index)

    monkeypatch.setattr(Rehearsal, "measure", noting)
    estimate(quick(policy="always").config, catalogue, tasks=1)
    assert seen == [1]
    assert torch.get_num_threads() == 2
