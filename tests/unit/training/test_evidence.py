"""Evidence: it is what its definition says, and collecting it changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from lw2g.geometry.hindrance import hfc
from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace, build
from lw2g.interfaces.constraint import ConstraintContext
from lw2g.interfaces.growth import Evidence
from lw2g.training.evidence import collect_evidence, unmeasured
from lw2g.training.probe import Probe
from lw2g.training.session import Session
from lw2g.training.spaces import absorb_task


def learned_one(session: Session) -> Probe:
    """Give the session one absorbed task with a random set, and return the next task's probe."""
    session.begin_task(0)
    torch.manual_seed(5)
    session.pool.grow(session.new_set(None))
    images = session.image_set([session.stream.tasks[0].train], train=False)
    context = session.task_context(0, images)
    probe = session.probe(0, images)
    rules = ConstraintContext(task=context, memory=session.memory, pretrained_space=probe.pretrained_space)
    absorb_task(session, context, probe, rules)
    session.begin_task(1)
    return session.probe(1, session.image_set([session.stream.tasks[1].train], train=False))


def test_collecting_changes_no_parameter_buffer_gradient_or_generator(
    session_of: Callable[..., Session],
) -> None:
    """Every tensor, flag, mode and generator is afterwards what it was before."""
    session = session_of()
    probe = learned_one(session)
    session.baseline.train()
    next(session.baseline.parameters()).requires_grad_(True)
    modules = [*session.modules, session.backbone]
    before = [{name: value.clone() for name, value in m.state_dict().items()} for m in modules]
    flags = [[p.requires_grad for p in m.parameters()] for m in modules]
    modes = [[part.training for part in m.modules()] for m in modules]
    state = torch.get_rng_state()
    collect_evidence(session.baseline, session.pool, session.memory, probe)
    assert torch.equal(state, torch.get_rng_state())
    for module, old in zip(modules, before, strict=True):
        assert all(torch.equal(value, old[name]) for name, value in module.state_dict().items())
        assert all(parameter.grad is None for parameter in module.parameters())
    assert flags == [[p.requires_grad for p in m.parameters()] for m in modules]
    assert modes == [[part.training for part in m.modules()] for m in modules]


def test_evidence_equals_its_definition(session_of: Callable[..., Session]) -> None:
    """Z is recomputed by hand: gradients of one half against the pre-trained space of the other."""
    session = session_of(baseline="s-prompt-plus-plus")
    probe = learned_one(session)
    found = collect_evidence(session.baseline, session.pool, session.memory, probe).candidates[0]
    sites = list(session.baseline.sites(session.pool[0]))
    data = session.stream.tasks[1].train
    scale = session.transforms.test
    count = len(probe.groups)
    halves = [
        [position for group in probe.groups[: count // 2] for position in group],
        [position for group in probe.groups[count // 2 :] for position in group],
    ]

    def images(positions: list[int]) -> torch.Tensor:
        return torch.stack([scale(data.source.image(int(data.indices[p]))) for p in positions])

    def labels(positions: list[int]) -> torch.Tensor:
        return torch.as_tensor([int(data.labels[p]) for p in positions])

    old_angles, pre_angles = [], []
    for half in (0, 1):
        parameter = sites[0].parameter.requires_grad_(True)
        features = session.backbone.features(
            images(halves[half]),
            session.baseline.injections(session.pool.force(0), len(halves[half])),  # type: ignore[operator]
        )
        logits = session.baseline.logits(features)[:, 2:4]
        loss = functional.cross_entropy(logits, labels(halves[half]) - 2)
        (gradient,) = torch.autograd.grad(loss, parameter)
        parameter.requires_grad_(False)
        spaces: list[Subspace] = []
        pretrained: list[Subspace] = []
        for site in sites:
            moment = SecondMoment(32, 4)
            moment.update(
                session.backbone.activations(images(halves[1 - half]), [site.activation.tap])[
                    site.activation.tap
                ]
            )
            pretrained.append(build(moment, 0.95))
            old = session.memory.space(0, site)
            assert old is not None
            spaces.append(old)
        rows = [site.rows(gradient) for site in sites]
        old_angles.append(hfc(rows, spaces).degrees)
        pre_angles.append(hfc(rows, pretrained).degrees)
    assert found.hfc == pytest.approx(sum(old_angles) / 2, abs=1e-3)  # type: ignore[arg-type]
    assert found.hfc_pre == pytest.approx(sum(pre_angles) / 2, abs=1e-3)  # type: ignore[arg-type]
    assert found.z == pytest.approx(found.hfc - found.hfc_pre)  # type: ignore[operator]
    assert found.z_error is not None
    assert found.z_error > 0


def test_a_set_whose_space_is_full_is_no_candidate(session_of: Callable[..., Session]) -> None:
    """A closed set is listed with its reason and is not eligible."""
    session = session_of({"growth.energy": 1.0}, baseline="s-prompt-plus-plus")
    probe = learned_one(session)
    for site in session.baseline.sites(session.pool[0]):
        moment = SecondMoment(32, 4)
        moment.update(torch.randn(200, 32, generator=torch.Generator().manual_seed(0)))
        session.memory.absorb(0, site, moment)
    found = collect_evidence(session.baseline, session.pool, session.memory, probe)
    assert found.candidates[0].excluded == "space is full"
    assert found.eligible == ()


def test_a_zero_gradient_is_undefined_evidence(session_of: Callable[..., Session]) -> None:
    """A candidate without any gradient is excluded, not taken for unhindered."""
    session = session_of()
    probe = learned_one(session)
    with torch.no_grad():
        session.baseline.head.weight.zero_()  # type: ignore[union-attr]
    found = collect_evidence(session.baseline, session.pool, session.memory, probe).candidates[0]
    assert found.excluded == "gradient is zero at every site"
    assert found.z is None


def test_unmeasured_evidence_names_the_live_sets(session_of: Callable[..., Session]) -> None:
    """Policies that need no evidence still learn which sets exist."""
    session = session_of()
    learned_one(session)
    found = unmeasured(session.pool, session.memory, session.baseline, 1)
    assert isinstance(found, Evidence)
    assert [candidate.set for candidate in found.candidates] == [0]
    assert found.candidates[0].z is None


def test_pretrained_spaces_are_those_of_the_plain_backbone(session_of: Callable[..., Session]) -> None:
    """S_pre is built from un-prompted queries of the whole D_sub, uncentred."""
    session = session_of({"growth.heads": "joint", "growth.energy_pre": 0.8})
    probe = learned_one(session)
    site = session.baseline.sites(session.pool[0])[0]
    data = session.stream.tasks[1].train
    images = torch.stack(
        [session.transforms.test(data.source.image(int(data.indices[p]))) for p in probe.sample]
    )
    moment = SecondMoment(32, 1)
    moment.update(session.backbone.activations(images, [site.activation.tap])[site.activation.tap])
    wanted, found = build(moment, 0.8), probe.pretrained_space(site)
    assert found.ranks == wanted.ranks
    rows = torch.randn(5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(found.on(rows), wanted.on(rows), atol=1e-5, rtol=1e-4)
