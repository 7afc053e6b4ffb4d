"""Every registered baseline predicts a sample alike alone, in a batch, and in any order of the batch."""

from __future__ import annotations

from functools import cache

import attrs
import pytest
import torch
from torch import Tensor, nn

from lw2g.heads import mask_logits
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.registry.catalogue import load_catalogue
from lw2g.testing.tiny import tiny_backbone

CPU = torch.device("cpu")
TASKS, SAMPLES, TOLERANCE = 3, 64, 1e-4


@cache
def catalogue():
    """Return the catalogue of all installed plugins, loaded once."""
    return load_catalogue()


@attrs.frozen(kw_only=True, eq=False)
class Trained:
    """A baseline with its sets as if it had learned three tasks of two classes."""

    baseline: Baseline
    retrieval: RetrievalStrategy | None
    pool: Pool
    images: Tensor

    def batch(self, positions: Tensor) -> Batch:
        """Return some of the images; its query costs a forward of the plain backbone, at this batch size."""
        backbone = self.baseline.context.backbone
        images = self.images[positions]
        norm = self.retrieval is None or self.retrieval.query_norm
        return Batch(
            labels=torch.zeros(len(positions), dtype=torch.long),
            samples=positions,
            images=lambda: images,
            query=lambda: backbone.features(images, norm=norm),
        )

    @torch.no_grad()
    def predict(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits over all classes and retrieved tasks (-1 without retrieval), as evaluation does."""
        batch = self.batch(positions)
        tasks, sets = torch.full((len(positions),), -1), None
        if self.retrieval is not None:
            of_class = torch.arange(2 * TASKS) // 2
            tasks = self.retrieval.retrieve(batch.query, range(TASKS), of_class)
            sets = self.pool.sets_of(tasks)
        features = self.baseline.features(batch, self.pool.route(sets))
        return mask_logits(self.baseline.logits(features), range(2 * TASKS)), tasks


def trained(component: BaselineComponent, **options) -> Trained:
    """Build a baseline and its own retrieval strategy, and give everything they hold random values."""
    torch.manual_seed(0)
    backbone = tiny_backbone()
    # with timm's random weights all images have nearly the same feature
    randomise(backbone, 0.1)
    build = BuildContext(backbone=backbone, num_tasks=TASKS, num_classes=2 * TASKS, device=CPU, seed=0)
    baseline = component.build(attrs.evolve(component.config(), **options.get("baseline", {})), build)
    retrieval = None
    if component.retrieval is not None:
        strategy = catalogue().get("retrieval", component.retrieval)
        retrieval = strategy.build(attrs.evolve(strategy.config(), **options.get("retrieval", {})), build)
    images = 2 * torch.randn(SAMPLES, 3, 16, 16) + torch.randn(SAMPLES, 3, 1, 1)
    found = Trained(baseline=baseline, retrieval=retrieval, pool=Pool(), images=images)
    history: tuple[TaskInfo, ...] = ()
    for index in range(TASKS):
        classes = (2 * index, 2 * index + 1)
        info = TaskInfo(
            index=index, classes=classes, class_names=("", ""), seen=classes[-1] + 1, num_images=8
        )
        history = (*history, info)
        begin(found, history, fixed=component.growth == "fixed")
    for module in (baseline, retrieval, *found.pool.sets):
        randomise(module, 0.3)
    return found


def begin(found: Trained, history: tuple[TaskInfo, ...], *, fixed: bool) -> None:
    """Give the next task its set, as the framework does."""
    baseline, pool, info = found.baseline, found.pool, history[-1]
    baseline.begin_task(info)
    grows = not (fixed and len(pool))
    set_id = pool.grow(baseline.new_set(baseline.source_of(pool))) if grows else pool.reuse(0)
    context = TaskContext(
        task=info,
        history=history,
        pool=pool,
        set_id=set_id,
        grew=grows,
        retrieval=found.retrieval,
        backbone=baseline.context.backbone,
        device=CPU,
        seed=0,
        statistics=lambda size: [found.batch(torch.arange(8))],
    )
    if found.retrieval is not None:
        found.retrieval.begin_task(context)


def randomise(module: nn.Module | None, scale: float) -> None:
    """Move every real-valued number that a module holds, so that sets differ and heads prefer something."""
    for value in () if module is None else module.state_dict().values():
        if value.is_floating_point():
            value.add_(scale * torch.randn_like(value))


@pytest.mark.parametrize("name", catalogue().names("baseline"))
def test_a_prediction_belongs_to_its_sample(name):
    """Class, task and logits of a sample are those it gets alone, in a batch of 64 and in a shuffled one."""
    found = trained(catalogue().get("baseline", name))
    everyone = torch.arange(SAMPLES)
    logits, tasks = found.predict(everyone)
    assert float(logits.std(dim=0).max()) > 100 * TOLERANCE
    assert found.retrieval is None or len(tasks.unique()) > 1
    order = torch.randperm(SAMPLES)
    shuffled, shuffled_tasks = found.predict(order)
    alone = [found.predict(everyone[i : i + 1]) for i in range(0, SAMPLES, 4)]
    for others, positions, other_tasks in (
        (shuffled, order, shuffled_tasks),
        (torch.cat([one for one, _ in alone]), everyone[::4], torch.cat([task for _, task in alone])),
    ):
        assert torch.equal(others.argmax(1), logits[positions].argmax(1))
        assert torch.equal(other_tasks, tasks[positions])
        torch.testing.assert_close(others, logits[positions], atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "options"),
    [("dual-prompt", {"retrieval": {"vote": "batch"}}), ("l2p", {"baseline": {"vote": "batch"}})],
)
def test_the_check_sees_a_batch_vote(name, options):
    """The literal variants that vote over a batch break the promise: company changes their predictions."""
    found = trained(catalogue().get("baseline", name), **options)
    everyone = torch.arange(SAMPLES)
    together = found.predict(everyone)[0]
    alone = torch.cat([found.predict(everyone[i : i + 1])[0] for i in range(0, SAMPLES, 4)])
    assert not torch.allclose(alone, together[::4], atol=1e-3)
