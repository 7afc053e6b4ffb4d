"""What a run would cost: exact where it can be, a range where it cannot, and nothing is written."""

from __future__ import annotations

import socket

import pytest
import torch

from lw2g.config.model import BackboneChoice
from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, DataError
from lw2g.testing.tiny import tiny_backbone
from lw2g.training.costs import estimate as module
from lw2g.training.costs import pricing, rehearsal
from lw2g.training.costs.counting import Rates, Tally
from lw2g.training.costs.estimate import Estimator, Range
from lw2g.training.costs.gauge import Gauge
from lw2g.training.costs.stand_ins import stand_in_weights
from lw2g.training.costs.thinning import Measured, between, on_a_line
from lw2g.training.runner import start
from lw2g.vit.backbone import Backbone
from lw2g.vit.hollow import hollowed
from lw2g.vit.lora import LayerInjection, LowRank
from lw2g.vit.prefix import PrefixInjection


@pytest.fixture(scope="module")
def run(catalogue, quick, tmp_path_factory):
    """An estimate, the record and the directory of the run that it is of, and its experiment."""
    resolved, directory = quick(policy="always"), tmp_path_factory.mktemp("estimated") / "run"
    found = Estimator(catalogue)(resolved.config)
    return found, start(resolved, catalogue, directory), directory, resolved


def test_what_can_be_counted_is_exact(run):
    """Sets, stored parameters, tasks and FLOPs are those of the run; no range is left."""
    found, record, *_ = run
    assert found.sets == Range(3, 3)
    assert found.stored == Range(*[record["storage"]["parameters"]] * 2)
    assert found.training_flops == record["flops"]["training_per_image"] > 0
    assert found.inference_flops == record["flops"]["inference_per_image"] > 0
    assert (found.tasks, found.images) == (3, (90, 48))


def test_disk_is_that_of_checkpoints_and_predictions(run):
    """Within a tenth of what the run has written, its log and record aside."""
    found, _, directory, _ = run
    files = [*directory.glob("checkpoints/*"), *directory.glob("predictions/*"), directory / "samples.json"]
    written = sum(path.stat().st_size for path in files)
    assert found.disk.least == found.disk.most == pytest.approx(written, rel=0.1)


def test_parts_add_up(run):
    """The time is that of its parts, each of which took some where there was work of its kind."""
    found, *_ = run
    assert found.seconds.least == pytest.approx(sum(part.least for part in found.parts.values()))
    worked = {name for name, part in found.parts.items() if part.least > 0}
    assert worked == {"data", "training", "evaluation", "checkpoints", "spaces"}
    assert found.as_mapping()["parts"]["evidence"] == {"least": 0.0, "most": 0.0}
    assert found.memory.least > 50 * 2**20


@pytest.mark.parametrize(
    ("names", "plans"),
    [
        ({"policy": "always"}, [(0, 1, 2)]),
        ({"policy": "one"}, [(0, 0, 0)]),
        ({"policy": "min"}, [(0, 0, 0), (0, 1, 2)]),
        ({"baseline": "l2p", "policy": "always"}, [(0, 0, 0)]),
    ],
)
def test_sets_are_known_as_far_as_the_policy_tells(catalogue, quick, names, plans):
    """A policy that looks at no evidence is asked; for one that does, the two extremes bound the rest."""
    assert Estimator(catalogue)._plans(quick(**names).config, 3) == plans


def test_measurements_are_shared(catalogue, quick, monkeypatch):
    """Another seed costs the same, and nothing is opened or measured again for it."""
    opened, real, estimator = [], module.open_session, Estimator(catalogue)
    monkeypatch.setattr(module, "open_session", lambda *given: opened.append(given) or real(*given))
    first = estimator(quick({"benchmark.tasks": 1}, policy="always").config)
    assert estimator(quick({"benchmark.tasks": 1, "run.seed": 7}, policy="always").config) == first
    assert len(opened) == 1


def test_plans_share_what_they_have_in_common(catalogue, quick, monkeypatch):
    """Operations are counted once for both bounds of a policy, evidence once per number and shape of sets."""
    asked, counted, collect, count = [], [], rehearsal.collect_evidence, rehearsal.count_flops

    def collecting(session, probe):
        asked.append((probe.task.index, len(session.pool), len(probe.sample)))
        return collect(session, probe)

    monkeypatch.setattr(rehearsal, "collect_evidence", collecting)
    monkeypatch.setattr(rehearsal, "count_flops", lambda *given: counted.append(given) or count(*given))
    estimator = Estimator(catalogue)
    found = estimator(quick(policy="min").config)
    assert sorted({(task, sets) for task, sets, _ in asked}) == [(1, 1), (2, 2)]
    assert len(asked) == len(set(asked))
    assert len(counted) == 1
    assert (found.sets, found.training_flops) == (Range(1, 3), estimator(quick().config).training_flops)
    assert found.parts["evidence"].most > found.parts["evidence"].least > 0
    asked.clear()
    estimator(quick({"growth.energy": 0.9}, policy="min").config)
    assert not asked


def test_counted_is_as_rehearsed(catalogue, run):
    """Work of a whole backbone, counted on a hollow one: the same operations, parameters, disk and sets."""
    found = run[0]
    counted = Estimator(catalogue)(run[3].config, counted=True)
    assert (found.method, counted.method) == ("rehearsed", "counted")
    assert counted.training_flops == pytest.approx(found.training_flops, rel=0.03)
    assert counted.inference_flops == pytest.approx(found.inference_flops, rel=0.03)
    assert (counted.sets, counted.trained, counted.stored) == (found.sets, found.trained, found.stored)
    assert counted.disk.least == pytest.approx(found.disk.least, rel=0.02)
    assert counted.parts.keys() == found.parts.keys()


def test_some_tasks_and_several_seeds_count(catalogue, run):
    """Two of three tasks, and twice that for two seeds; more tasks than there are is a mistake."""
    estimator = Estimator(catalogue)
    found = estimator(run[3].config, tasks=2)
    assert (found.tasks, found.images, found.sets) == (2, (64, 34), Range(2, 2))
    assert found.disk.most < run[0].disk.least
    twice = found.times(2)
    assert (twice.runs, twice.seconds, twice.disk) == (2, found.seconds.times(2), found.disk.times(2))
    assert (twice.memory, twice.parts["data"]) == (found.memory, found.parts["data"].times(2))
    with pytest.raises(ConfigError, match="cannot stop after task 4: the stream has 3"):
        estimator(run[3].config, tasks=4)


def test_what_is_slow_or_too_large_is_counted(catalogue, quick, monkeypatch):
    """A forward beyond the patience that a cell has, or a batch beyond the memory, is never gone through."""
    config, patience = quick().config, pricing.Models(catalogue, 100.0)
    assert pricing.Models(catalogue, 0.0)(config).tally is not None
    assert patience(config).tally is None
    monkeypatch.setattr(pricing, "usable_memory", lambda: 1000)
    assert patience(config).tally is not None


def test_a_hollow_backbone_has_layers_of_full_size():
    """What is added to any layer, MLPs included, has the size that it has in the whole one, and is felt."""
    whole = tiny_backbone()
    hollow = hollowed(whole)
    blocks = [dict(one.model.blocks.named_parameters()) for one in (whole, hollow)]
    assert blocks[0].keys() == blocks[1].keys()
    assert all(torch.equal(value, blocks[1][name]) for name, value in blocks[0].items())
    images = torch.zeros(1, 3, whole.image_size, whole.image_size)
    hidden, dim = whole.model.blocks[0].mlp.fc1.weight.shape
    update = LowRank(
        down=torch.ones(1, dim),
        up=torch.ones(hidden, 1),
    )
    added = LayerInjection({0: {"fc1": update}})
    assert not torch.allclose(hollow.features(images, [added]), hollow.features(images))


def test_each_pass_through_a_block_is_priced_at_full_size():
    """A second per forward, three with its backward; the last MLP sees the class token's row alone."""
    whole = tiny_backbone()
    hollow = hollowed(whole)
    tally = Tally(whole, hollow, Rates(forward=1.0, step=3.0, kept=10.0, passing=2.0))
    images = torch.zeros(2, 3, whole.image_size, whole.image_size)
    with torch.no_grad():
        hollow.tokens(images)
    embedding = tally.seconds - 2 * whole.depth
    assert 0 < embedding < 1
    assert tally.held == 2 * 2.0
    seconds = tally.seconds
    prefix = torch.zeros(2, 1, whole.dim, requires_grad=True)
    hollow.tokens(images, [PrefixInjection({0: (prefix[0], prefix[1])})])
    assert tally.seconds - seconds == pytest.approx(embedding + 2 * 3 * whole.depth)
    assert tally.held == 2 * (whole.depth + 1) * 10.0
    seconds = tally.seconds
    with torch.no_grad():
        hollow.features(images)
    assert tally.seconds - seconds < embedding + 2 * whole.depth


def test_a_dry_run_asks_no_network(catalogue, monkeypatch, tmp_path):
    """Weights that are not here are missing at once: nobody is asked for an address."""
    asked = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **options: asked.append(given))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    component = catalogue.get("backbone", "vit-tiny")
    chosen = BackboneChoice(name="vit-tiny", config=component.config(), image_size=16)
    missing, backbone = stand_in_weights(chosen, component)
    assert "--weights FILE" in missing.remedy
    assert (backbone.dim, asked) == (192, [])


def test_what_is_missing_is_told_and_stood_in_for(catalogue, quick, tmp_path):
    """Data that are not here are replaced by noise of the published size; the remedy is a command."""
    wanted = {"benchmark.root": str(tmp_path), "benchmark.increment": 50}
    names = {"baseline": "simple-cil", "policy": "always", "benchmark": "cifar100"}
    wanted |= {"run.device": "cpu", "run.evaluation_batch": 64}
    resolved = resolve(catalogue, overrides=wanted, backbone="tiny", **names)
    found = Estimator(catalogue)(resolved.config)
    assert (found.tasks, found.images) == (2, (50_000, 10_000))
    (missing,) = found.missing
    assert "lw2g data get cifar100" in missing.remedy
    assert found.seconds.least > 0


def test_statistics_without_training_are_counted(catalogue, monkeypatch):
    """Class means over more images than are looked at: nothing has left their features behind."""
    asked = []
    monkeypatch.setattr(Gauge, "affordable", lambda self, wanted, passes=1.0: min(wanted, 8))
    monkeypatch.setattr(Gauge, "now", lambda self: float(len(asked)))
    features = Backbone.features

    def counted(self, images, *rest, **named):
        asked.extend(images)
        return features(self, images, *rest, **named)

    monkeypatch.setattr(Backbone, "features", counted)
    names = {"baseline": "simple-cil", "benchmark": "tiny", "backbone": "tiny"}
    overrides = {"benchmark.tasks": 1, "run.device": "cpu", "run.evaluation_batch": 8}
    found = Estimator(catalogue)(resolve(catalogue, overrides=overrides, **names).config)
    assert found.parts["training"] == Range(25, 25)  # two classes of 12 and 13 images, each seen once


def test_fitting_a_mix_is_priced(catalogue, quick, monkeypatch):
    """Images held back of a task are answered once it is learned: a second each."""
    fitted, learn = [], rehearsal.learn_routing

    def learning(session, context, reporter):
        learn(session, context, reporter)
        fitted.extend(session.held_back[context.task.index].ids)

    monkeypatch.setattr(Gauge, "now", lambda self: float(len(fitted)))
    monkeypatch.setattr(Gauge, "affordable", lambda self, wanted, passes=1.0: min(wanted, 2))
    monkeypatch.setattr(rehearsal, "learn_routing", learning)
    overrides = {"routing.mix": 2, "routing.held_back": 4, "benchmark.tasks": 2}
    found = Estimator(catalogue)(quick(overrides, policy="always").config)
    assert found.parts["training"] == Range(2 * 4, 2 * 4)


def test_what_has_no_known_size_is_refused(catalogue, tmp_path):
    """Without data or counts there is nothing to measure."""
    wanted = {"benchmark.root": str(tmp_path), "run.device": "cpu"}
    names = {"baseline": "simple-cil", "benchmark": "omnibenchmark-1k", "backbone": "tiny"}
    resolved = resolve(catalogue, overrides=wanted, **names)
    with pytest.raises(DataError, match="lw2g data get omnibenchmark-1k"):
        Estimator(catalogue)(resolved.config)


def test_a_line_goes_through_both_measurements():
    """Work of two seconds and one a hundred images takes seven for five hundred; what fits is done whole."""
    assert on_a_line(200, 500, lambda count: 2 + count / 100) == pytest.approx(7)
    assert on_a_line(500, 500, lambda count: count) == 500


def test_tasks_between_measured_ones_lie_on_a_line():
    """What grows with the tasks is interpolated, and continued past the last measured one."""
    measured = {task: Measured(checkpoint=cost) for task, cost in ((0, 5), (1, 10), (5, 30))}
    costs = [between(measured, task).checkpoint for task in range(8)]
    assert costs == [5, 10, 15, 20, 25, 30, 35, 40]
