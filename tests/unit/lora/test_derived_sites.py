"""Sites behind a linear map: second moments, spaces and evidence of ``z = D x``."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bits import moment_of
from lw2g.blocks.lora import LowRankSet, down_sites, up_sites
from lw2g.interfaces.memory import SpaceOptions, SubspaceMemory
from lw2g.interfaces.site import Activation, Site
from lw2g.learning.evidence.collecting import collect_evidence
from lw2g.learning.evidence.gradients import group_gradients
from lw2g.learning.evidence.spaces import absorb_task
from lw2g.learning.protection import Protection
from lw2g.lifecycle.runner import start
from lw2g.maths.comparisons import Comparisons
from lw2g.maths.hindrance import hfc
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace, image
from lw2g.vit.taps import Tap


def test_the_image_of_a_moment_is_the_moment_of_the_images():
    """``D C D^T``, row sum and count are those of the mapped rows."""
    rows, matrix = torch.randn(20, 6).double(), torch.randn(3, 6).double()
    found, expected = moment_of(rows).image(matrix), moment_of(rows @ matrix.T)
    torch.testing.assert_close(found.matrix, expected.matrix)
    torch.testing.assert_close(found.row_sum, expected.row_sum)
    assert (found.count, found.dim) == (20, 3)


@pytest.mark.parametrize(("heads", "columns"), [(2, 6), (1, 5)])
def test_the_image_of_a_moment_needs_a_joint_moment_of_its_width(heads, columns):
    """Per-head moments lack what couples the heads; other widths do not fit."""
    with pytest.raises(ValueError, match=r"a matrix \[r, 6\] and a joint moment but got"):
        SecondMoment(6, heads).image(torch.zeros(3, columns))


def test_energy_behind_a_map_needs_the_map():
    """An activation that is the tapped one has no other place to be cut."""
    with pytest.raises(ValueError, match="a map beside cut = 'map'"):
        Activation(tap=Tap(0, "attn_in"), cut="map")


def test_a_tap_stands_for_the_rows_that_are_read_there():
    """A site may name the tap alone."""
    tap = Tap(0, "attn_in")
    assert Site(name="w", parameter=nn.Parameter(torch.zeros(1)), activation=tap).activation.tap is tap


def test_factors_share_the_space_of_their_input():
    """The up factors' spaces are images of the down factor's space, which is kept and extended once."""
    made = LowRankSet(num_blocks=1, num_targets=2, rank=3, dim=8, bound=1.0)
    memory = SubspaceMemory(SpaceOptions(energy=0.9))
    sites = (*down_sites(made, [4]), *up_sites(made, [4], ("k", "v")))
    for task in range(2):
        moment = moment_of(torch.randn(2, 8, generator=torch.Generator().manual_seed(task)))
        for site in sites:
            memory.absorb(0, site, moment)
    assert memory.ranks(0) == {"0/blocks.4.down": 4, "0/blocks.4.up_k": 3, "0/blocks.4.up_v": 3}
    assert memory.basis_vectors == 10
    own = memory.space(0, sites[0])
    expected = image(made.down[0, 1], own)
    torch.testing.assert_close(memory.space(0, sites[2]).basis, expected.basis)


def test_energy_is_cut_behind_the_map_where_a_site_says_so():
    """The memory's space is that of the mapped rows, not the image of a space with more directions."""
    rows, matrix = torch.randn(40, 8), torch.randn(3, 8)
    site = Site(
        name="up",
        parameter=nn.Parameter(torch.zeros(8, 3)),
        activation=Activation(tap=Tap(0, "attn_in"), map=lambda: matrix, cut="map"),
    )
    memory = SubspaceMemory(SpaceOptions(energy=0.5))
    memory.absorb(1, site, moment_of(rows))
    expected = Subspace.build(moment_of(rows @ matrix.T), 0.5)
    assert memory.space(1, site).rank == expected.rank < 3
    torch.testing.assert_close(
        memory.space(1, site).on(rows[:, :3]), expected.on(rows[:, :3]), atol=1e-4, rtol=0
    )
    assert image(matrix, Subspace.build(moment_of(rows), 0.5)).is_full


def test_evidence_behind_the_map_equals_its_definition(session_of):
    """InfLoRA: gradients of one half against the space of the other half's ``z``, cut in R^rank."""
    session = session_of({"baseline.rank": 4, "growth.energy": 0.5}, baseline="inflora", policy="min")
    session.parts.begin_task(0)
    torch.manual_seed(5)
    session.parts.pool.grow(session.parts.new_set(None))
    for parameter in session.parts.pool[0].parameters():
        parameter.data = 0.1 * torch.randn_like(parameter)
    images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    context, evidence_sample = session.task_context(0, images), session.parts.evidence_sample(0, images)
    absorb_task(session.parts, context, evidence_sample)
    session.parts.begin_task(1)
    evidence_sample = session.parts.evidence_sample(
        1, session.data.image_set([session.data.stream.tasks[1].train], train=False)
    )
    found = collect_evidence(session.parts, evidence_sample).candidates[0].measures["hindrance"]
    sites = list(session.parts.baseline.sites(session.parts.pool[0]))
    gradients = group_gradients(evidence_sample, session.parts.baseline, session.parts.pool, {0: sites})[0]
    plan = Comparisons.disjoint_halves(len(evidence_sample.groups), evidence_sample.generator("half-samples"))
    angles = []
    for number, (gradient, weight) in enumerate(zip(plan.gradient[0], plan.whole[0], strict=True)):
        if not weight:
            continue
        spaces = []
        for site in sites:
            tap = site.activation.tap
            down = session.parts.pool[0].down[tap.block, 0].double()
            chosen = plan.subsets[number].nonzero()[:, 0].tolist()
            whole = sum(evidence_sample.moments([tap])[tap][group].matrix[0] for group in chosen)
            rows = torch.linalg.cholesky(whole + 1e-12 * torch.eye(len(whole))).T @ down.T
            spaces.append(Subspace.build(moment_of(rows), 0.5))
        own = plan.subsets[gradient].bool()
        angles += [
            hfc([one[draw, own].double().sum(dim=0) for one in gradients], spaces).degrees
            for draw in range(4)
        ]
    assert found.parts["hfc_pre"] == pytest.approx(sum(angles) / len(angles), abs=1e-3)
    assert found.parts["hfc"] is not None
    assert 0 < found.parts["energy_null_hfc"] < 90
    assert {(site["dim"], name) for name, site in found.sites.items()} == {
        (4, f"blocks.{b}.up") for b in range(5)
    }


def test_rules_are_made_once_the_set_is_designed(quick, catalogue, tmp_path, monkeypatch):
    """In a run the constraints see the designed down factor of a new set, not the empty one."""
    seen, whole = [], Protection.for_task

    def for_task(constraints, sites, context, trained):
        seen.append(float(context.parameters.down.norm()))
        return whole(constraints, sites, context, trained)

    monkeypatch.setattr(Protection, "for_task", for_task)
    overrides = {"baseline.rank": 4, "baseline.epochs": 1}
    chosen = quick(overrides, baseline="inflora", policy="always", constraints=("cpk",))
    start(chosen, catalogue, tmp_path / "run")
    assert len(seen) == 3
    assert all(norm == pytest.approx((5 * 4 / 3) ** 0.5, rel=1e-4) for norm in seen[:1])
    assert min(seen) > 0
