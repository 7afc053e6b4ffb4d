"""Properties of the posterior, of the mix of several sets' answers, and of what both are judged by."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lw2g.config.settings import RoutingConfig
from lw2g.disk.predictions import Predictions
from lw2g.interfaces.calibration import Temperature
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.model.mixing import Mixer, log_prior, owned_classes
from lw2g_testing.strategies import task_splits, task_to_set_maps

IMAGES = 4
SCALES = st.sampled_from([1e-3, 1.0, 50.0, 1e4])


class Told(RetrievalStrategy):
    """Says what it was told, of tasks alone or of classes, too; the query is not asked."""

    def __init__(self, tasks: Tensor, classes: Tensor | None, temperature: float) -> None:
        super().__init__(SimpleNamespace(backbone=None))
        self.temperature = Temperature(temperature)
        self.tasks, self.classes = tasks, classes

    def scores(self, query: Tensor, seen: range, task_of_class: Tensor) -> Tensor:
        return self.tasks[:, : len(seen)]

    def class_scores(self, query: Tensor, classes: int) -> Tensor | None:
        return None if self.classes is None else self.classes[:, :classes]


def ones(count: int = IMAGES) -> Tensor:
    return torch.ones(count, dtype=torch.float64)


@given(data=st.data(), split=task_splits(), seed=st.integers(0, 999), scale=SCALES, heat=SCALES)
def test_posterior_prior_and_mix_sum_to_one(
    data: st.DataObject, split: tuple[tuple[int, ...], ...], seed: int, scale: float, heat: float
) -> None:
    """Over tasks, classes and sets, for tasks of any sizes, whatever the scores, the map and the options."""
    owner = torch.tensor(list(data.draw(task_to_set_maps(num_tasks=st.just(len(split)))).values()))
    of_class = torch.repeat_interleave(torch.arange(len(split)), torch.tensor([len(one) for one in split]))
    tasks, classes, sets = len(split), len(of_class), int(owner.max()) + 1
    generator = torch.Generator().manual_seed(seed)
    scores, opinions = (scale * torch.randn(IMAGES, size, generator=generator) for size in (tasks, classes))
    retrieval = Told(scores, data.draw(st.sampled_from([None, opinions])), heat)
    log_tasks = retrieval.temperature.log_posterior(scores)
    torch.testing.assert_close(log_tasks.exp().sum(1), ones().float())
    prior = log_prior(retrieval, ones(), of_class, log_tasks)
    torch.testing.assert_close(prior.exp().sum(1), ones(), rtol=1e-5, atol=0)
    if retrieval.classes is None:
        share = torch.zeros(IMAGES, tasks).double().index_add(1, of_class, prior.exp())
        torch.testing.assert_close(share, log_tasks.exp().double(), rtol=1e-5, atol=1e-30)

    measures = data.draw(st.lists(st.sampled_from(["mass", "entropy", "logsumexp"]), unique=True))
    mix = data.draw(st.sampled_from(["all", 1, 2, 3]))
    combine = data.draw(st.sampled_from(["mixture", "hierarchical"]))
    mixer = Mixer(RoutingConfig(mix=mix, combine=combine, evidence=tuple(measures)))
    mixer.constants.uniform_(0, 2, generator=generator)
    chosen, log_sets = mixer.choose(log_tasks, owner, sets)
    masses = torch.zeros(IMAGES, sets).index_add(1, owner, log_tasks.exp())
    torch.testing.assert_close(log_sets.exp(), masses.gather(1, chosen), rtol=1e-5, atol=1e-30)
    if mix == "all":
        torch.testing.assert_close(log_sets.exp().sum(1), ones().float())
    logits = scale * torch.randn(IMAGES, chosen.shape[1], classes, generator=generator)
    answer = mixer.combine(logits, log_sets, owned_classes(chosen, owner, of_class), prior)
    assert answer.shape == (IMAGES, classes)
    torch.testing.assert_close(answer.exp().sum(1), ones(), rtol=1e-9, atol=0)


@given(data=st.data(), task_to_set=task_to_set_maps())
def test_coverage_grows_from_the_share_retrieved_to_all(
    data: st.DataObject, task_to_set: dict[int, int]
) -> None:
    """Among the first choice lie the samples that got their set, among all choices every sample."""
    owner = np.array(list(task_to_set.values()))
    sets = int(owner.max()) + 1
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=len(owner), max_size=len(owner)))
    task = np.repeat(np.arange(len(owner)), sizes)
    rank = np.array(data.draw(st.lists(st.integers(0, sets - 1), min_size=len(task), max_size=len(task))))
    got = np.where(rank == 0, owner[task], (owner[task] + rank) % sets)
    found = Predictions(
        sample=np.arange(len(task)), task=task, true=task, predicted=task, retrieved=task, set=got, rank=rank
    )
    covered = np.array([found.coverage(count) for count in range(1, sets + 1)])
    assert covered[0].tolist() == pytest.approx(
        found.retrievals(owner, [(own,) for own in range(len(owner))], [""] * len(owner))
    )
    assert (np.diff(covered, axis=0) >= 0).all()
    assert (covered >= 0).all()
    assert (covered[-1] == 100).all()
    for index, size in enumerate(sizes):
        hits = sorted(rank[task == index].tolist())
        assert covered[:, index].tolist() == pytest.approx(
            [100 * sum(hit < count for hit in hits) / size for count in range(1, sets + 1)]
        )
