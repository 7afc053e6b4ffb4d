"""Evidence: it is what its definition says, and collecting it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.evidence import Sample
from lw2g.interfaces.growth import Evidence, Grow
from lw2g.interfaces.pool import Routing
from lw2g.learning.evidence.collecting import collect_evidence, unmeasured
from lw2g.learning.evidence.evidence_sample import EvidenceSample, balanced
from lw2g.learning.evidence.fitted import FittedHead
from lw2g.learning.evidence.gradients import group_gradients, set_features
from lw2g.learning.evidence.spaces import absorb_task
from lw2g.maths.comparisons import Comparisons
from lw2g.maths.hindrance import hfc
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g_growth.options import MarginConfig
from lw2g_growth.policies import RulePolicy
from runs import learned_one


@pytest.mark.parametrize(
    "options",
    [{}, {"growth.centre": True}, {"growth.evidence": "literal"}],
    ids=["plain", "centred", "literal"],
)
def test_evidence_equals_its_definition(session_of, options):
    """Angles, means and error are recomputed from the images, S_pre anew for every half-sample."""
    # groups of one and of two images
    chosen = {"growth.images": 22, "growth.draws": 2, **options}
    session = session_of(chosen, baseline="s-prompt-plus-plus")
    evidence_sample = learned_one(session)
    found = collect_evidence(session.parts, evidence_sample).candidates[0].measures["hindrance"]
    baseline, data = session.parts.baseline, session.data.stream.tasks[1].train
    sites = list(baseline.sites(session.parts.pool[0]))
    old = [session.parts.memory.space(0, site) for site in sites]
    literal, centred = "growth.evidence" in options, "growth.centre" in options
    plan = (Comparisons.in_sample if literal else Comparisons.disjoint_halves)(
        16, evidence_sample.generator("half-samples")
    )
    subsets = [
        [p for g in subset.nonzero()[:, 0] for p in evidence_sample.groups[int(g)]] for subset in plan.subsets
    ]
    images = torch.stack([session.data.transforms.test(data.source.image(int(i))) for i in data.indices])
    labels = torch.tensor(data.labels.tolist()) - 2
    head = baseline.head  # type: ignore[attr-defined]

    def spaces(subset: list[int]) -> list[Subspace]:
        """S_pre of these images alone."""
        taps = [site.activation.tap for site in sites]
        seen = session.parts.backbone.activations(images[subset], taps)
        rows = [seen[tap].reshape(-1, 32) for tap in taps]
        moments = [SecondMoment(32, 4) for _ in rows]
        for moment, own in zip(moments, rows, strict=True):
            moment.update(own.double() - own.double().mean(dim=0) if centred else own)
        return [Subspace.build(moment, 0.95) for moment in moments]

    def gradient(subset: list[int]) -> list[Tensor]:
        """The gradient of the mean loss of these images in one batch."""
        parameter = sites[0].parameter.requires_grad_(True)
        prefix = baseline.prefixes.chosen(session.parts.pool.force(0), len(subset))  # type: ignore[union-attr]
        features = session.parts.backbone.features(images[subset], (prefix,))
        loss = functional.cross_entropy(baseline.logits(features)[:, 2:5], labels[subset])
        (raw,) = torch.autograd.grad(loss, parameter)
        parameter.requires_grad_(False)
        return [site.rows(raw) for site in sites]

    pretrained = [spaces(subset) for subset in subsets]
    before = head.weight.clone()
    tables, tables_old = [], []
    for number in range(1 if literal else 2):
        if not literal:
            head.weight.data.copy_(before)
            torch.manual_seed(derive_seed(42, "task", 1, "head", number))
            baseline.draw_head(evidence_sample.task)
        gradients = [gradient(subset) for subset in subsets]
        tables_old.append([[hfc(gradients[i], old).degrees for i in row] for row in plan.gradient.tolist()])
        tables.append(
            [
                [hfc(gradients[i], space).degrees for i, space in zip(row, pretrained, strict=True)]
                for row in plan.gradient.tolist()
            ]
        )
    hfc_old, hfc_pre = (torch.tensor(one, dtype=torch.float64) for one in (tables_old, tables))
    weights = plan.whole / plan.whole.sum()
    z = ((hfc_old - hfc_pre) * weights).sum(dim=(1, 2))
    halves = plan.halves / plan.halves.sum(dim=(2, 3), keepdim=True)
    first, second = ((hfc_old - hfc_pre).mean(dim=0) * halves).sum(dim=(2, 3))
    variance = float((first - second).square().mean()) / 4 * (1 - 22 / len(data))
    variance += 0.0 if literal else float(z.var()) / 2
    assert found.parts["hfc"] == pytest.approx(float((hfc_old * weights).sum()) / len(z), abs=1e-3)
    assert found.parts["hfc_pre"] == pytest.approx(float((hfc_pre * weights).sum()) / len(z), abs=1e-3)
    assert found.value == pytest.approx(float(z.mean()), abs=1e-3)
    assert found.error == pytest.approx(variance**0.5, rel=1e-2)


def test_the_evidence_sample_is_a_balanced_draw(session_of):
    """The sample takes every class alike, spreads it over the groups, and another seed takes others."""
    samples = []
    for seed in (1, 2, 3):
        session = session_of({"growth.images": 20, "run.seed": seed, "benchmark.train": 30})
        session.parts.begin_task(0)
        evidence_sample = session.parts.evidence_sample(
            0, session.data.image_set([session.data.stream.tasks[0].train], train=False)
        )
        labels = np.asarray(session.data.stream.tasks[0].train.labels)
        assert np.bincount(labels[evidence_sample.positions]).tolist() == [10, 10]
        assert len(set(evidence_sample.positions)) == 20
        of_class = np.array([np.bincount(labels[group], minlength=2) for group in evidence_sample.groups])
        assert (of_class.max(axis=0) - of_class.min(axis=0) <= 1).all()
        assert {len(group) for group in evidence_sample.groups} == {1, 2}
        samples.append(set(evidence_sample.positions))
    assert samples[0] != samples[1] != samples[2] != samples[0]
    assert max(max(sample) for sample in samples) > 40


def test_a_class_with_few_images_gives_all_it_has():
    """What one class lacks, the others give."""
    labels = torch.tensor([7] * 3 + [4] * 20 + [9] * 20)
    chosen = balanced(labels, 17, torch.Generator().manual_seed(0))
    assert torch.bincount(labels[chosen])[[4, 7, 9]].tolist() == [7, 3, 7]
    assert labels[chosen].tolist() == sorted(labels[chosen].tolist())


def test_all_candidates_are_asked_under_the_same_heads(session_of):
    """A copy of a set, with the same spaces, has the same evidence to the last bit."""
    session = session_of({"growth.draws": 3}, baseline="s-prompt-plus-plus")
    evidence_sample = learned_one(session)
    session.parts.pool.grow(session.parts.new_set(session.parts.pool[0]))
    for site in session.parts.baseline.sites(session.parts.pool[1]):
        key = session.parts.memory.key(1, site)
        session.parts.memory._spaces[key] = session.parts.memory.space(0, site)  # type: ignore[assignment]
    found = collect_evidence(session.parts, evidence_sample)
    one, other = found.candidates
    assert one.measures["hindrance"].value is not None
    assert one.measures == other.measures
    assert [found.tasks_of(candidate.set) for candidate in found.candidates] == [(0,), (1,)]


@pytest.mark.parametrize("baseline", ["s-prompt-plus-plus", "cprompt"])
def test_a_drawn_head_is_as_large_as_the_one_it_replaces(session_of, baseline):
    """New rows have the spread of the old ones, zero stays zero, and rows of other classes stay."""
    session = session_of(baseline=baseline)
    learned_one(session)
    method, task = session.parts.baseline, session.parts.infos[1]
    before = {name: value.clone() for name, value in method.named_parameters()}
    torch.manual_seed(3)
    method.draw_head(task)
    moved = {name for name, value in method.named_parameters() if not torch.equal(value, before[name])}
    own = (
        {"head.weight"} if baseline == "s-prompt-plus-plus" else {"classifiers.1.weight", "auxiliary.weight"}
    )
    assert moved == own
    for name in moved:
        rows = slice(2, 5) if name == "head.weight" else slice(None)
        value, old = method.get_parameter(name).clone(), before[name]
        assert float(value[rows].std()) == pytest.approx(float(old[rows].std()), rel=0.3)
        value[rows] = old[rows]
        assert torch.equal(value, old)


@pytest.mark.slow
def test_the_claimed_error_is_the_spread_of_z_or_somewhat_more(session_of):
    """Over 32 independent samples and draws of the head: about a quarter too large (benchmarks/README.md)."""
    chosen = {"growth.images": 32, "benchmark.train": 40, "backbone.depth": 2}
    chosen["baseline.blocks"] = [0, 1]
    session = session_of(chosen, baseline="s-prompt-plus-plus")
    learned_one(session)
    task = session.parts.infos[2]
    images = session.data.image_set([session.data.stream.tasks[2].train], train=False)
    values, errors = [], []
    for seed in range(32):
        evidence_sample = EvidenceSample(
            task, images, session.parts.backbone, session.parts.engine, session.parts.config.growth, seed
        )
        found = collect_evidence(session.parts, evidence_sample).candidates[0].measures["hindrance"]
        values.append(found.value)
        errors.append(found.error)
    claimed = float(np.sqrt(np.mean(np.square(errors))))  # type: ignore[arg-type]
    assert 0.9 < claimed / float(np.std(values, ddof=1)) < 1.5  # type: ignore[arg-type]


@pytest.mark.parametrize("baseline", ["hide-prompt", "dual-prompt", "hide-lora", "cprompt"])
def test_groups_that_share_a_forward_have_the_gradients_they_have_alone(session_of, monkeypatch, baseline):
    """Copies of a set keep a batch's groups apart; a baseline that takes none is asked group by group."""
    session = session_of({"growth.images": 22, "growth.draws": 2}, baseline=baseline)
    evidence_sample, method = learned_one(session), session.parts.baseline
    sites = {
        0: [one for one in (*method.sites(session.parts.pool[0]), *method.shared_sites()) if one.measured]
    }
    assert any(site.owner == "shared" for site in sites[0]) == (baseline == "dual-prompt")
    for parameter in session.parts.pool[0].parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    sizes: list[int] = []
    features = method.features

    def counted(batch: Batch, routing: Routing) -> Tensor:
        sizes.append(len(batch))
        return features(batch, routing)

    monkeypatch.setattr(method, "features", counted)
    together = group_gradients(evidence_sample, method, session.parts.pool, sites)[0]
    assert sizes == [22]
    assert len(list(evidence_sample.batches())) == 1
    with monkeypatch.context() as large:  # a backbone so large that a batch of several groups would not fit
        large.setattr("lw2g.learning.evidence.evidence_sample._BYTES", 1)
        assert len(list(evidence_sample.batches())) == 16
    monkeypatch.setattr(type(method), "takes_copies", False)
    alone = group_gradients(evidence_sample, method, session.parts.pool, sites)[0]
    assert sizes[1:] == [len(group) for group in evidence_sample.groups]
    assert len(together) == len(alone) == len(sites[0])
    for one, other in zip(together, alone, strict=True):
        assert one.shape[:2] == (2, 16)
        assert float(one.abs().amax(dim=(0, 2, 3)).min()) > 0
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("baseline", ["hide-prompt", "coda-prompt"])
def test_images_are_read_once_and_no_deeper_than_wanted(session_of, monkeypatch, baseline):
    """Spaces take one pass to the deepest tap, and another to the end only where a query is needed."""
    session = session_of({"baseline.blocks": [0, 1], "growth.images": 20}, baseline=baseline)
    session.parts.begin_task(0)
    session.parts.pool.grow(session.parts.new_set(None))
    images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    context, evidence_sample = session.task_context(0, images), session.parts.evidence_sample(0, images)
    passed = dict.fromkeys((0, 1, 2), 0)

    def count(block: int) -> Callable[..., None]:
        def seen(module: object, args: tuple[Tensor, ...]) -> None:
            passed[block] += len(args[0])

        return seen

    hooks = [session.parts.backbone.model.blocks[one].register_forward_pre_hook(count(one)) for one in passed]
    absorb_task(session.parts, context, evidence_sample)
    whole = {"hide-prompt": 0, "coda-prompt": 32}[baseline]  # two batches of 16, the second filled up
    assert passed == {0: 20 + whole, 1: 20 + whole, 2: whole}
    for site in session.parts.baseline.sites(session.parts.pool[0]):
        evidence_sample.pretrained_space(site)
    assert passed == {0: 40 + whole, 1: 40 + whole, 2: whole}
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("screen", ["least", "most", "ends"])
def test_a_screen_leaves_out_sets_by_what_they_capture_and_changes_no_other(session_of, screen):
    """The sets of least or most energy are measured as without a screen; the others say their share."""
    found = {}
    for count in (0, 2):
        session = session_of({"growth.screen": count, "growth.draws": 2}, baseline="s-prompt-plus-plus")
        evidence_sample = learned_one(session)
        for new, keep in enumerate((1, 3, 2), start=1):
            session.parts.pool.grow(session.parts.new_set(None))
            for site in session.parts.baseline.sites(session.parts.pool[new]):
                space = session.parts.memory.space(0, site)
                cut = Subspace(basis=space.basis[:, :, :keep].clone(), ranks=(keep,) * 4)  # type: ignore[union-attr]
                session.parts.memory._spaces[session.parts.memory.key(new, site)] = cut
        growth = attrs.evolve(session.parts.growth, screen=screen)
        found[count] = collect_evidence(
            attrs.evolve(session.parts, growth=growth), evidence_sample
        ).candidates
    shares = [one.captured for one in found[0]]
    assert all(0 < share < 1 for share in shares)  # type: ignore[operator]
    assert shares[1] < shares[2] > shares[3] > shares[1]  # type: ignore[operator]
    order = sorted(range(4), key=lambda one: shares[one])  # type: ignore[arg-type, return-value]
    kept = {"least": order[:2], "most": order[2:], "ends": [order[0], order[-1]]}[screen]
    for number, (plain, one) in enumerate(zip(found[0], found[2], strict=True)):
        assert one.captured == plain.captured
        if number in kept:
            assert one == plain
        else:
            assert (one.measures, one.rank) == ({}, plain.rank)
            assert one.excluded == f"screened out: captures {plain.captured:.1%}"


def test_a_set_whose_space_is_full_is_no_candidate(session_of):
    """A closed set is listed with its reason and is not eligible."""
    session = session_of({"growth.energy": 1.0}, baseline="s-prompt-plus-plus")
    evidence_sample = learned_one(session)
    for site in session.parts.baseline.sites(session.parts.pool[0]):
        moment = SecondMoment(32, 4)
        moment.update(torch.randn(200, 32, generator=torch.Generator().manual_seed(0)))
        session.parts.memory.absorb(0, site, moment)
    found = collect_evidence(session.parts, evidence_sample)
    assert found.candidates[0].excluded == "space is full"
    assert found.eligible == ()


def test_a_zero_gradient_is_undefined_evidence(session_of):
    """A candidate without any gradient is undefined and says why; it is not taken for unhindered."""
    session = session_of()
    evidence_sample = learned_one(session)
    with torch.no_grad():
        session.parts.baseline.head.weight.zero_()  # type: ignore[union-attr]
    found = collect_evidence(session.parts, evidence_sample).candidates[0]
    measured = found.measures["hindrance"]
    assert (measured.value, measured.why) == (None, "gradient is zero at every site")
    assert (
        RulePolicy(MarginConfig()).decide(Evidence(task=1, candidates=(found,)), np.random.default_rng(0))
        == Grow()
    )


def test_unmeasured_evidence_names_the_live_sets(session_of):
    """Policies that need no evidence still learn which sets exist, and which tasks each holds."""
    session = session_of()
    learned_one(session)
    found = unmeasured(session.parts, 1)
    assert isinstance(found, Evidence)
    assert [candidate.set for candidate in found.candidates] == [0]
    assert found.candidates[0].measures == {}
    assert (found.tasks_of(0), found.tasks_of(1)) == ((0,), ())


def test_pretrained_spaces_are_those_of_the_plain_backbone(session_of):
    """S_pre is built from un-prompted queries of the whole evidence sample, uncentred."""
    session = session_of({"growth.heads": "joint", "growth.energy_pre": 0.8})
    evidence_sample = learned_one(session)
    site = session.parts.baseline.sites(session.parts.pool[0])[0]
    data = session.data.stream.tasks[1].train
    images = torch.stack(
        [
            session.data.transforms.test(data.source.image(int(data.indices[p])))
            for p in evidence_sample.positions
        ]
    )
    moment = SecondMoment(32, 1)
    moment.update(session.parts.backbone.activations(images, [site.activation.tap])[site.activation.tap])
    wanted, found = Subspace.build(moment, 0.8), evidence_sample.pretrained_space(site)
    assert found.ranks == wanted.ranks
    rows = torch.randn(5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(found.on(rows), wanted.on(rows), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("baseline", ["s-prompt-plus-plus", "coda-prompt"])
def test_gradients_of_a_fitted_head_are_those_of_its_loss(session_of, baseline):
    """Groups add up to the whole, the head of one half is asked on the other, and parameters stay."""
    session = session_of({"growth.measures": ["gradient-agreement"]}, baseline=baseline)
    evidence_sample = learned_one(session)
    sites = [one for one in session.parts.baseline.sites(session.parts.pool[0]) if one.measured]
    features = torch.cat(set_features(evidence_sample, session.parts.baseline, session.parts.pool, [0])[0])
    head = FittedHead(evidence_sample, features)
    found = group_gradients(
        evidence_sample, session.parts.baseline, session.parts.pool, {0: sites}, fitted=lambda one: head
    )[0]
    assert {len(rows) for rows in found} == {1}
    batch = next(iter(evidence_sample.batches()))[0]
    assert len(batch) == 16
    for site in sites:
        site.parameter.requires_grad_(True)
    routing = (
        session.parts.pool.force(0) if baseline == "s-prompt-plus-plus" else session.parts.pool.route(None)
    )
    loss = head(session.parts.baseline.features(batch, routing), batch)
    wanted = torch.autograd.grad(loss, [site.parameter for site in sites])
    for site in sites:
        site.parameter.requires_grad_(False)
    for rows, site, raw in zip(found, sites, wanted, strict=True):
        torch.testing.assert_close(rows[0].sum(dim=0), 16 * site.rows(raw), rtol=1e-3, atol=1e-5)
    # whoever asks for its own half's head gets another loss
    swapped = FittedHead(evidence_sample, features)
    swapped._side = 1 - swapped._side
    assert float(swapped(features, batch)) < float(head(features, batch))


def test_what_stands_beside_a_measure_does_not_change_it(session_of):
    """One pass for all says what a pass of its own says, of measures that store and of those that do not."""
    names = ["energy", "novelty", "projection", "gradient-agreement", "centroid", "confusion", "logme"]
    chosen = {"growth.draws": 2, "baseline.blocks": [0, 1]}
    every = {}
    for measures in (names, *([name] for name in names)):
        session = session_of(
            chosen | {"growth.measures": measures}, policy="always", baseline="s-prompt-plus-plus"
        )
        evidence_sample = learned_one(session)
        (found,) = collect_evidence(session.parts, evidence_sample).candidates
        assert list(found.measures) == measures
        for name, said in found.measures.items():
            assert said.value is not None, name
            assert every.setdefault(name, said) == said


@pytest.mark.parametrize(("retrieval", "asked"), [("key-cosine", True), ("oracle", False)])
def test_the_runs_own_retrieval_is_asked_unless_it_is_a_control(session_of, retrieval, asked):
    """With one task learned every image goes to it; an oracle cannot answer, and class means decide."""
    session = session_of(
        {"growth.measures": ["confusion"]},
        policy="always",
        baseline="s-prompt-plus-plus",
        retrieval=retrieval,
    )
    evidence_sample = learned_one(session)
    shown = []
    confusion = session.parts.growth.measures["confusion"]
    measure = confusion.measure

    def watched(sample: Sample) -> Any:
        shown.append(sample.retrieved)
        return measure(sample)

    confusion.measure = watched  # type: ignore[method-assign]
    (found,) = collect_evidence(session.parts, evidence_sample).candidates
    assert found.measures["confusion"].value is not None
    (retrieved,) = shown
    assert (retrieved is not None and retrieved.tolist() == [0] * 16) == asked
