"""Where and how strongly each constraint acts."""

from __future__ import annotations

import itertools

import attrs
import pytest
import torch
from torch import nn

from lw2g.interfaces.site import Activation, Site
from lw2g.learning.protection import Protection
from lw2g.maths.moments import SecondMoment
from lw2g.vit.taps import Tap
from lw2g_constraints.options import CpkConfig, PgpConfig
from lw2g_constraints.plugin import lw2g_constraints


@attrs.frozen
class Built:
    """What a constraint reads of the build context."""

    device: torch.device


def built(name, **options):
    """Build a registered constraint by name."""
    component = next(item for item in lw2g_constraints() if item.name == name)
    return component.build(component.config(**options), Built(torch.device("cpu")))


def axes(restriction):
    """Return which coordinate axes span a space made of coordinate axes."""
    inside = restriction.subspace.on(torch.eye(restriction.subspace.dim))
    return {int(axis) for axis in inside.diagonal().round().nonzero().flatten()}


# -- orthogonal ---------------------------------------------------------------------------------------------


def test_orthogonal_binds_a_reused_set_with_its_own_space(stage, make_moment):
    """On reuse a set's site gets the space of that set, not another's."""
    stage.memory.absorb(0, stage.own, make_moment(6, [0, 1]))
    stage.memory.absorb(1, stage.own, make_moment(6, [4]))
    assert axes(built("orthogonal").restriction(stage.own, stage.context(set_id=0))) == {0, 1}
    assert axes(built("orthogonal").restriction(stage.own, stage.context(set_id=1))) == {4}


def test_orthogonal_leaves_a_new_set_free(stage, make_moment):
    """A grown set has no old task to protect, even if spaces of its id existed."""
    stage.memory.absorb(0, stage.own, make_moment(6, [0]))
    assert built("orthogonal").restriction(stage.own, stage.context(grew=True)) is None


@pytest.mark.parametrize("grew", [True, False])
def test_orthogonal_binds_shared_sites_from_the_second_task_on(stage, make_moment, grew):
    """Shared parameters serve all old tasks: bound whether the pool grows or not, but not at first."""
    assert built("orthogonal").restriction(stage.shared, stage.context(task=0, grew=True)) is None
    stage.memory.absorb(None, stage.shared, make_moment(6, [3]))
    restriction = built("orthogonal").restriction(stage.shared, stage.context(grew=grew))
    assert axes(restriction) == {3}
    assert restriction.strength == 1


def test_orthogonal_is_hard_and_needs_the_memory():
    """The runner reads from the constraint what must be built for it."""
    constraint = built("orthogonal", on="gradient")
    assert (constraint.hard, constraint.needs_memory, constraint.on) == (True, True, "gradient")
    assert not constraint.absorbs


def test_freeze_holds_a_reused_set_alone(stage):
    """Where nothing is reused it asks for nothing."""
    assert [built("freeze").holds(stage.context(grew=grew)) for grew in (True, False)] == [False, True]


# -- cpk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grew", [True, False])
@pytest.mark.parametrize("phi", [0.0, 0.3, 0.75])
def test_cpk_takes_one_minus_phi_in_every_task(stage, grew, phi):
    """Grow or reuse, own or shared: the strength is 1 - phi with the pre-trained space."""
    constraint = built("cpk", phi=phi)
    for site in (stage.own, stage.shared):
        restriction = constraint.restriction(site, stage.context(grew=grew))
        assert restriction.strength == pytest.approx(1 - phi)
        assert axes(restriction) == {0, 1}
    assert (constraint.hard, constraint.needs_memory, constraint.on) == (False, False, "update")


def test_cpk_with_phi_1_asks_for_nothing(stage):
    """Switched off, the rule does not even have the pre-trained space built."""
    assert built("cpk", phi=1.0).restriction(stage.own, stage.context()) is None
    assert stage.asked == []


def test_cpk_skips_sites_without_soft_rules(stage):
    """A site may refuse soft rules."""
    stubborn = attrs.evolve(stage.own, soft=False)
    assert built("cpk", phi=0.2).restriction(stubborn, stage.context()) is None
    assert stage.asked == []


# -- pgp ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grew", [True, False])
def test_pgp_binds_every_set_from_the_second_task_on(stage, make_moment, grew):
    """One space per position for the whole run: it holds for whatever set is trained, but not in task 1."""
    constraint = built("pgp", energy=1.0)
    assert constraint.restriction(stage.own, stage.context(task=0, grew=True)) is None
    constraint.absorb(stage.own, make_moment(6, [0, 1]), stage.context(task=0, grew=True))
    constraint.absorb(stage.own, make_moment(6, [4]), stage.context(task=1, grew=True, set_id=1))
    restriction = constraint.restriction(stage.own, stage.context(task=2, grew=grew, set_id=2))
    assert axes(restriction) == {0, 1, 4}
    assert restriction.strength == 1
    assert constraint.restriction(stage.shared, stage.context(task=2)) is None


def test_pgp_keeps_half_the_energy_by_default(stage, make_moment):
    """With energies 4, 2, 1, 1 one direction reaches one half; the same space absorbs no more."""
    constraint = built("pgp")
    rows = make_moment(6, [0, 0, 0, 0, 1, 1, 2, 3])
    for _ in range(2):
        constraint.absorb(stage.own, rows, stage.context())
        assert axes(constraint.restriction(stage.own, stage.context())) == {0}


@pytest.mark.parametrize(("power", "rule", "rank"), [(2, "reach", 3), (4, "reach", 2), (2, "below", 2)])
def test_pgp_has_the_release_letter_by_name(stage, make_moment, power, rule, rank):
    """Energies 4, 2, 1, 1 of 8: 0.8 takes three directions, two when squared (16, 4, 1, 1), below two."""
    constraint = built("pgp", energy=0.8, power=power, rule=rule)
    constraint.absorb(stage.own, make_moment(6, [0, 0, 0, 0, 1, 1, 2, 3]), stage.context())
    assert constraint.restriction(stage.own, stage.context()).subspace.rank == rank


def test_pgp_keeps_spaces_of_its_own(stage, make_moment):
    """It reads nothing from the memory, and counts the vectors that it stores."""
    constraint = built("pgp", energy=1.0)
    assert (constraint.hard, constraint.needs_memory, constraint.absorbs) == (True, False, True)
    assert constraint.basis_vectors == 0
    constraint.absorb(stage.own, make_moment(6, [0, 1]), stage.context())
    constraint.absorb(stage.shared, make_moment(6, [0, 1, 4], heads=2), stage.context())
    assert constraint.basis_vectors == 2 + 3


@pytest.mark.parametrize("kind", ["block_in", "query"])
def test_pgp_protects_tokens_from_each_other(kind, make_moment):
    """Rows that are tokens of the stream meet one another in attention: they join their inputs' space."""
    prompt = nn.Parameter(torch.diag(torch.tensor([0.0, 0, 3, 0, 2, 0])))
    site = Site(name="blocks.0.tokens", parameter=prompt, activation=Activation(tap=Tap(0, kind)))
    constraint = built("pgp", energy=1.0)
    constraint.absorb(site, make_moment(6, [0, 1]), None)
    found = axes(constraint.restriction(site, None))
    assert found == ({0, 1, 2, 4} if kind == "block_in" else {0, 1})


def test_tokens_and_inputs_are_stacked_and_never_summed():
    """An update off the stacked rows meets neither; off the sum of both it may meet both (the release)."""
    inputs = torch.eye(6)[:2]
    tokens = -0.5 * inputs
    tokens[1] = -inputs[1]  # this row vanishes in the sum
    prompt = nn.Parameter(tokens.clone())
    site = Site(name="blocks.0.tokens", parameter=prompt, activation=Activation(tap=Tap(0, "block_in")))
    constraint = built("pgp", energy=1.0)
    rows = SecondMoment(6)
    rows.update(inputs)
    constraint.absorb(site, rows, None)
    step = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    kept = constraint.restriction(site, None).subspace.off(step)
    for others in (inputs, tokens):
        assert (others @ kept.T).abs().max() < 1e-6
    left = torch.linalg.svd((inputs + tokens).T).U[:, :1]
    summed = step - step @ left @ left.T
    assert all((others @ summed.T).abs().max() > 0.1 for others in (inputs, tokens))


def test_pgp_maps_the_tapped_space_through_the_set_being_trained(stage, make_moment):
    """A derived site gets the image under the present factor on reuse, and is free in a fresh set."""
    down = nn.Parameter(torch.eye(6)[[0, 5]])  # z = (x_0, x_5)
    derived = Site(
        name="blocks.2.lora_up",
        parameter=nn.Parameter(torch.zeros(4, 2)),
        activation=Activation(tap=Tap(2, "attn_in"), map=lambda: down),
    )
    constraint = built("pgp", energy=1.0)
    constraint.absorb(derived, make_moment(6, [0, 1]), stage.context())
    assert axes(constraint.restriction(derived, stage.context(grew=False))) == {0}
    assert constraint.restriction(derived, stage.context(grew=True)) is None
    down.data = torch.eye(6)[[3, 1]]
    assert axes(constraint.restriction(derived, stage.context(grew=False))) == {1}


# -- together -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["update", "gradient"])
@pytest.mark.parametrize("order", list(itertools.permutations(["orthogonal", "cpk", "pgp"])))
def test_three_constraints_at_one_site(stage, make_moment, order, on):
    """The soft one acts first, then the union of both hard spaces, in whatever order they are named."""
    oblique = SecondMoment(6)
    oblique.update(torch.tensor([[0.0, 0, 1, 1, 0, 0]]))
    mixed = SecondMoment(6)
    mixed.update(torch.tensor([[0.0, 1, 1, 0, 0, 0]]))
    stage.memory.absorb(0, stage.own, oblique)
    constraints = {"cpk": built("cpk", phi=0.25, on=on), "orthogonal": built("orthogonal", on=on)}
    constraints["pgp"] = built("pgp", energy=1.0, on=on)
    constraints["pgp"].absorb(stage.own, mixed, stage.context())
    parameter = stage.own.parameter
    parameter.data = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    protection = Protection.for_task(
        [constraints[name] for name in order], [stage.own], stage.context(), [parameter]
    )
    raw = torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
    start, parameter.grad = parameter.detach().clone(), raw.clone()
    protection.after_backward()
    protection.before_step()
    torch.optim.SGD([parameter], lr=1.0).step()
    protection.after_step()
    softened = raw.clone()
    softened[:, :2] *= 0.25  # cpk's space on this stage is the first two axes
    hard = torch.linalg.qr(torch.tensor([[0.0, 0, 1, 1, 0, 0], [0, 1, 1, 0, 0, 0]]).T).Q
    expected = softened - softened @ hard @ hard.T
    torch.testing.assert_close(start - parameter.detach(), expected, atol=1e-5, rtol=0)


# -- options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: CpkConfig(phi=-0.1), "phi"),
        (lambda: CpkConfig(phi=1.1), "phi"),
        (lambda: PgpConfig(energy=0.0), "energy"),
    ],
)
def test_bad_options_are_refused(make, field):
    """A value outside its range is refused when the config is made, naming the field."""
    with pytest.raises(ValueError, match=field):
        make()
