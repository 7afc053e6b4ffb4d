"""Properties of the protection engine: what stays put, what may move, and in which order rules act."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lw2g.errors import ContractError, DataError
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.site import Activation, Restriction, Site
from lw2g.learning.protection import Protection, SiteRule
from lw2g.maths.subspace import Subspace, union
from lw2g.vit.taps import Tap
from lw2g_testing.strategies import subspaces

SEEDS = st.integers(0, 2**31 - 1)
TAP = Tap(0, "query")


def space_of(dim, heads, ranks, seed=0):
    """Return a random subspace with the given ranks per head."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.zeros(heads, dim // heads, max(ranks), dtype=torch.float64)
    for head, rank in enumerate(ranks):
        square = torch.randn(dim // heads, dim // heads, generator=generator, dtype=torch.float64)
        basis[head, :, :rank] = torch.linalg.qr(square).Q[:, :rank]
    return Subspace(basis=basis, ranks=tuple(ranks))


def site_of(parameter, name="site", index=(), owner="set"):
    """Return a site on a parameter."""
    return Site(name=name, parameter=parameter, index=index, activation=Activation(tap=TAP), owner=owner)


def hard(site, space, on="update"):
    """Return a hard rule."""
    return SiteRule(site=site, restriction=Restriction(subspace=space), on=on, hard=True)


def soft(site, space, strength, on="update"):
    """Return a soft rule."""
    return SiteRule(site=site, restriction=Restriction(subspace=space, strength=strength), on=on, hard=False)


def parameter_of(*shape, seed=1):
    """Return a random float32 parameter."""
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


def train(parameter, protection, optimizer, steps, seed=2, scales=None):
    """Take steps on random linear losses whose gradients differ in scale between the columns."""
    generator = torch.Generator().manual_seed(seed)
    dim = parameter.shape[-1]
    scales = torch.logspace(-2, 1, dim) if scales is None else scales
    for _ in range(steps):
        optimizer.zero_grad()
        target = torch.randn(parameter.shape, generator=generator) + 1.0
        ((parameter * target * scales).sum() + (parameter**2).sum()).backward()
        protection.after_backward()
        protection.before_step()
        optimizer.step()
        protection.after_step()


def inside(space, displacement):
    """Return the share of a displacement's norm that lies in a space, in float64."""
    moved = displacement.detach().double()
    return float(space.on(moved).norm() / moved.norm())


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=0.1),
}


# -- hard rules on updates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize(("heads", "ranks"), [(1, (9,)), (4, (3, 0, 8, 5))])
def test_the_displacement_leaves_the_space_alone(make, heads, ranks):
    """After many steps with momentum, rescaling and weight decay nothing has moved inside the space."""
    parameter = parameter_of(5, 32)
    start, space = parameter.detach().clone(), space_of(32, heads, ranks)
    train(parameter, Protection([hard(site_of(parameter), space)]), make([parameter]), 200)
    assert (parameter - start).norm() > 0.1
    assert inside(space, parameter - start) < 1e-5


def test_logits_of_old_queries_stay_per_head():
    """Old per-head prefix logits move by less than 1e-4; a joint space keeps only their sum over heads."""
    heads, width, rank = 4, 8, 3
    space = space_of(heads * width, heads, (rank,) * heads)
    generator = torch.Generator().manual_seed(5)
    shared = torch.randn(60, rank, generator=generator, dtype=torch.float64)  # one latent for all heads
    queries = torch.einsum("nk,hwk->nhw", shared, space.basis)
    gram = queries.reshape(60, -1).T @ queries.reshape(60, -1)
    joint = Subspace(basis=torch.linalg.eigh(gram).eigenvectors[None, :, -rank:], ranks=(rank,))

    def moved(protected):
        keys = parameter_of(5, heads * width)
        before = torch.einsum("nhw,phw->nhp", queries.float(), keys.detach().view(5, heads, width))
        train(keys, Protection([hard(site_of(keys), protected)]), torch.optim.Adam([keys], lr=0.01), 150)
        after = torch.einsum("nhw,phw->nhp", queries.float(), keys.detach().view(5, heads, width))
        return after - before

    assert moved(space).abs().max() < 1e-4
    assert moved(joint).sum(dim=1).abs().max() < 1e-3
    assert moved(joint).abs().max() > 0.1


def test_several_hard_rules_keep_their_union():
    """Spaces that are not orthogonal to each other are both respected, however many rules there are."""
    parameter = parameter_of(4, 16)
    start = parameter.detach().clone()
    spaces = [space_of(16, 1, (5,), seed=seed) for seed in (1, 2)]
    rules = [hard(site_of(parameter), space) for space in spaces]
    train(parameter, Protection(rules), torch.optim.Adam([parameter], lr=0.01), 60)
    for space in (*spaces, union(*spaces)):
        assert inside(space, parameter - start) < 1e-5
    assert (parameter - start).norm() > 0.1


def test_a_full_space_freezes_bit_for_bit():
    """Nothing is left outside a full space, so nothing moves, not even by rounding."""
    parameter = parameter_of(4, 8)
    start = parameter.detach().clone()
    train(
        parameter,
        Protection([hard(site_of(parameter), space_of(8, 2, (4, 4)))]),
        torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.5),
        20,
    )
    assert torch.equal(parameter, start)


@given(space=subspaces(), seed=SEEDS, scale=st.sampled_from([1e-6, 1.0, 1e3]))
def test_hard_update_is_the_projection_of_the_displacement(space, seed, scale):
    """Against a dense projector: p = start + (1 - P)(p - start); applied twice it changes nothing more."""
    parameter = nn.Parameter(parameter_of(3, space.dim, seed=seed).detach().double())
    start = parameter.detach().clone()
    moved = torch.randn(3, space.dim, generator=torch.Generator().manual_seed(seed + 1)).double() * scale
    protection = Protection([hard(site_of(parameter), space)])
    protection.before_step()
    parameter.data += moved
    protection.after_step()
    projector = torch.block_diag(*(block @ block.T for block in space.basis))
    expected = start + moved @ (torch.eye(space.dim, dtype=torch.float64) - projector)
    assert torch.allclose(parameter, expected, atol=1e-11 * max(1.0, scale), rtol=0)
    assert (parameter - start).norm() <= moved.norm() * (1 + 1e-9) + 1e-12
    once = parameter.detach().clone()
    protection.after_step()
    assert torch.allclose(parameter, once, atol=1e-12 * max(1.0, scale), rtol=0)


# -- soft rules ---------------------------------------------------------------------------------------------


@given(space=subspaces(), seed=SEEDS, strength=st.floats(0, 1), on=st.sampled_from(["update", "gradient"]))
def test_soft_rules_scale_the_component_of_every_step(space, seed, strength, on):
    """Two SGD steps: each loses the share `strength` of its in-space part and nothing of the rest."""
    parameter = nn.Parameter(parameter_of(2, space.dim, seed=seed).detach().double())
    protection = Protection([soft(site_of(parameter), space, strength, on=on)])
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    for step in range(2):
        raw = parameter_of(2, space.dim, seed=seed + 1 + step).detach().double()
        before = parameter.detach().clone()
        parameter.grad = raw.clone()
        protection.after_backward()
        protection.before_step()
        optimizer.step()
        protection.after_step()
        moved = before - parameter.detach()
        assert torch.allclose(moved, raw - strength * space.on(raw), atol=1e-11)
        assert moved.norm() <= raw.norm() * (1 + 1e-9)


@pytest.mark.parametrize("on", ["update", "gradient"])
def test_strength_0_is_the_identity(on):
    """A rule that removes nothing is no rule: the run is bit-identical to one without protection."""
    results = []
    for rules in ([], [0.0]):
        parameter = parameter_of(3, 8)
        protection = Protection([soft(site_of(parameter), space_of(8, 1, (3,)), s, on=on) for s in rules])
        assert protection.is_empty
        train(parameter, protection, torch.optim.Adam([parameter], lr=0.01), 10)
        results.append(parameter.detach())
    assert torch.equal(*results)


def test_soft_removal_on_updates_survives_adam():
    """With strength 1 every Adam step loses all of its in-space part; on gradients Adam brings some back."""
    shares = {}
    for on in ("update", "gradient"):
        parameter, space = parameter_of(4, 16), space_of(16, 1, (6,))
        start = parameter.detach().clone()
        protection = Protection([soft(site_of(parameter), space, 1.0, on=on)])
        train(parameter, protection, torch.optim.Adam([parameter], lr=0.01), 40)
        shares[on] = inside(space, parameter - start)
    assert shares["update"] < 1e-4
    assert shares["gradient"] > 0.05


@pytest.mark.parametrize("hard_first", [True, False])
@pytest.mark.parametrize("on", ["update", "gradient"])
def test_soft_comes_before_hard_whatever_the_order_of_constraints(on, hard_first):
    """The result is hard(soft(step)), which stays out of the hard space; soft(hard(step)) would not."""
    parameter = nn.Parameter(parameter_of(3, 12).detach().double())
    closed, pretrained = space_of(12, 1, (5,), seed=1), space_of(12, 1, (5,), seed=2)
    rules = [hard(site_of(parameter), closed, on), soft(site_of(parameter), pretrained, 0.7, on)]
    protection = Protection(rules if hard_first else rules[::-1])
    start, raw = parameter.detach().clone(), parameter_of(3, 12, seed=9).detach().double()
    parameter.grad = raw.clone()
    protection.after_backward()
    protection.before_step()
    torch.optim.SGD([parameter], lr=1.0).step()
    protection.after_step()
    softened = raw - 0.7 * pretrained.on(raw)
    assert torch.allclose(start - parameter, closed.off(softened), atol=1e-11)
    other_order = closed.off(raw) - 0.7 * pretrained.on(closed.off(raw))
    assert closed.on(other_order).norm() > 0.05 * raw.norm()


# -- gradient mode ------------------------------------------------------------------------------------------


def test_gradient_mode_holds_under_sgd_and_leaks_under_adam():
    """Projected gradients are projected updates for plain SGD only."""
    shares = {}
    for name, make in (
        ("sgd", lambda p: torch.optim.SGD(p, lr=1e-3)),
        ("adam", lambda p: torch.optim.Adam(p, lr=1e-3)),
    ):
        parameter, space = parameter_of(5, 32), space_of(32, 1, (12,))
        start = parameter.detach().clone()
        rules = [hard(site_of(parameter), space, on="gradient")]
        train(parameter, Protection(rules), make([parameter]), 50)
        shares[name] = inside(space, parameter - start)
    assert shares["sgd"] < 1e-5
    assert shares["adam"] > 0.02


@given(space=subspaces(), seed=SEEDS)
def test_hard_gradient_is_orthogonal_idempotent_and_no_longer(space, seed):
    """The gradient loses its in-space part, never grows, and a second pass leaves it."""
    parameter = parameter_of(3, space.dim, seed=seed)
    raw = parameter_of(3, space.dim, seed=seed + 1).detach()
    parameter.grad = raw.clone()
    protection = Protection([hard(site_of(parameter), space, on="gradient")])
    protection.after_backward()
    once = parameter.grad.clone()
    assert space.on(once).norm() <= 1e-6 * raw.norm()
    assert once.norm() <= raw.norm() * (1 + 1e-6)
    assert torch.allclose(once, space.off(raw), atol=1e-6)
    protection.after_backward()
    assert torch.allclose(parameter.grad, once, atol=1e-6 * float(raw.norm()))


@pytest.mark.parametrize("on", ["update", "gradient"])
def test_zero_in_zero_out(on):
    """No gradient, or a zero one, moves nothing by a single bit."""
    parameter = parameter_of(3, 8)
    start, space = parameter.detach().clone(), space_of(8, 2, (3, 1))
    protection = Protection([hard(site_of(parameter), space, on), soft(site_of(parameter), space, 0.5, on)])
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    for gradient in (None, torch.zeros_like(start)):
        parameter.grad = gradient
        protection.after_backward()
        protection.before_step()
        optimizer.step()
        protection.after_step()
        assert parameter.grad is gradient
        assert torch.equal(parameter, start)


# -- places -------------------------------------------------------------------------------------------------


def test_parts_of_one_parameter_have_rules_of_their_own():
    """Sites that differ in their index are bent each by its own space; the rest of the tensor runs free."""
    free = parameter_of(2, 2, 5, 16)
    bound = nn.Parameter(free.detach().clone())
    start = free.detach().clone()
    spaces = {(0, 0): space_of(16, 1, (6,), seed=1), (1, 0): space_of(16, 2, (2, 3), seed=2)}
    rules = [hard(site_of(bound, f"layer{i}", (i, j)), space) for (i, j), space in spaces.items()]
    train(free, Protection(), torch.optim.Adam([free], lr=0.01), 30)
    train(bound, Protection(rules), torch.optim.Adam([bound], lr=0.01), 30)
    for index, space in spaces.items():
        assert inside(space, (bound - start)[index]) < 1e-5
        assert inside(space, (free - start)[index]) > 0.1
    for j in range(2):  # the value half, index 1 of the second axis
        assert torch.equal(bound[j, 1], free[j, 1])


def test_parameters_without_rules_are_bit_identical():
    """Protecting one parameter changes nothing about another in the same optimizer."""
    results = []
    for protect in (False, True):
        pair = [parameter_of(3, 8, seed=1), parameter_of(3, 8, seed=2)]
        protection = Protection([hard(site_of(pair[0]), space_of(8, 1, (4,)))] if protect else [])
        optimizer = torch.optim.Adam(pair, lr=0.01)
        for _ in range(10):
            optimizer.zero_grad()
            (pair[0].sin().sum() + pair[1].cos().sum()).backward()
            protection.after_backward()
            protection.before_step()
            optimizer.step()
            protection.after_step()
        results.append([one.detach() for one in pair])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][0], results[1][0])


def test_overlapping_parts_are_refused():
    """A site inside another one cannot be protected together with it."""
    parameter, space = parameter_of(2, 3, 8), space_of(8, 1, (2,))
    with pytest.raises(ContractError, match="'part' is a part of site 'whole'"):
        Protection([hard(site_of(parameter, "part", (0,)), space), hard(site_of(parameter, "whole"), space)])


def test_repeated_names_are_refused():
    """Two sites of one name would share a space in the memory and a value in the checkpoint."""
    space = space_of(8, 1, (2,))
    with pytest.raises(ContractError, match="repeat a name"):
        Protection([hard(site_of(parameter_of(2, 8, seed=s)), space) for s in (1, 2)])


def test_a_set_and_shared_parameters_may_use_the_same_name():
    """Names are per owner."""
    pair, space = [parameter_of(2, 8, seed=s) for s in (1, 2)], space_of(8, 1, (2,))
    protection = Protection(
        [hard(site_of(one, owner=owner), space) for one, owner in zip(pair, ("set", "shared"), strict=True)]
    )
    assert len({key.split("|")[0] for key in protection.state_dict()}) == 2


def test_rules_that_do_not_fit_are_refused():
    """A space of another width, or a hard rule that is not whole, is the constraint's mistake."""
    site = site_of(parameter_of(2, 8))
    with pytest.raises(ContractError, match="space of width 4 for rows of 8"):
        hard(site, space_of(4, 1, (2,)))
    with pytest.raises(ContractError, match=r"strength 0\.5"):
        SiteRule(
            site=site,
            restriction=Restriction(subspace=space_of(8, 1, (2,)), strength=0.5),
            on="update",
            hard=True,
        )


# -- a task's constraints -----------------------------------------------------------------------------------


class Everywhere(Constraint):
    """Restricts each site it is asked about to one space, and notes which were asked."""

    def __init__(self, space, hard=True):
        self.space, self.hard, self.asked = space, hard, []

    def restriction(self, site, context):
        """Return the space, except at sites named 'free'."""
        self.asked.append(site.name)
        return None if site.name == "free" else Restriction(subspace=self.space)


def test_for_task_asks_only_about_trained_parameters():
    """A site whose parameter is frozen in the host phases is left alone, even if something else moves it."""
    trained, frozen, free = (parameter_of(2, 8, seed=seed) for seed in (1, 2, 3))
    constraint = Everywhere(space_of(8, 1, (2,)))
    sites = [site_of(trained, "trained"), site_of(frozen, "frozen"), site_of(free, "free")]
    protection = Protection.for_task([constraint], sites, None, [trained, free])
    assert constraint.asked == ["trained", "free"]
    assert {key.split("|")[0] for key in protection.state_dict()} == {"set/trained"}
    frozen.data += 1.0
    moved = frozen.detach().clone()
    protection.after_step()
    assert torch.equal(frozen, moved)


def test_for_task_without_restrictions_is_empty():
    """No constraint, or an empty space, leaves nothing to do and nothing to store."""
    parameter = parameter_of(2, 8)
    for constraints in ([], [Everywhere(Subspace.empty(8))]):
        protection = Protection.for_task(constraints, [site_of(parameter)], None, [parameter])
        assert protection.is_empty
        assert protection.state_dict() == {}


# -- continuation -------------------------------------------------------------------------------------------


def ruled(parameter, closed_seed=1, pretrained_seed=2):
    """Return a protection with a hard and a soft rule."""
    site = site_of(parameter)
    return Protection(
        [
            hard(site, space_of(16, 4, (2, 1, 0, 3), seed=closed_seed)),
            soft(site, space_of(16, 4, (1, 1, 2, 1), seed=pretrained_seed), 0.5),
        ]
    )


@pytest.mark.parametrize("on", ["gradient", "update"])
def test_a_state_holds_the_spaces_of_both_moments(on):
    """What was stored acts after loading, at the moment it acted, and not what was found when made again."""
    parameter = parameter_of(3, 8)
    stored, found = space_of(8, 1, (3,), seed=1), space_of(8, 1, (3,), seed=2)
    state = Protection(
        [hard(site_of(parameter), stored, moment) for moment in ("gradient", "update")]
    ).state_dict()
    again = Protection([hard(site_of(parameter), found, moment) for moment in ("gradient", "update")])
    again.load_state_dict(state)
    start = parameter.detach().clone()
    change = torch.randn(3, 8, generator=torch.Generator().manual_seed(3))
    if on == "gradient":
        parameter.grad = change.clone()
        again.after_backward()
        left = parameter.grad
    else:
        parameter.data += change
        again.after_step()
        left = parameter.detach() - start
    torch.testing.assert_close(left, change - stored.on(change), atol=1e-5, rtol=0)
    assert float(found.on(left).norm()) > 0.1


def test_a_protection_made_mid_task_continues_to_the_same_bits():
    """Start values and spaces come from the state, whatever was found when it was made again."""
    whole = parameter_of(3, 16)
    protection, optimizer = ruled(whole), torch.optim.Adam([whole], lr=0.01)
    train(whole, protection, optimizer, 10)
    state = {key: value.clone() for key, value in protection.state_dict().items()}
    copy, moments = nn.Parameter(whole.detach().clone()), deepcopy(optimizer.state_dict())
    train(whole, protection, optimizer, 10, seed=3)

    resumed = ruled(copy, closed_seed=1, pretrained_seed=7)  # say: another solver gave another space
    again = torch.optim.Adam([copy], lr=0.01)
    again.load_state_dict(moments)
    resumed.load_state_dict(state)
    train(copy, resumed, again, 10, seed=3)
    assert torch.equal(copy, whole)


def test_a_state_of_other_rules_is_refused():
    """A checkpoint made under other constraints does not load in silence."""
    parameter = parameter_of(3, 16)
    state = ruled(parameter).state_dict()
    only_hard = Protection([hard(site_of(parameter), space_of(16, 1, (3,)))])
    for wrong in (state, {}, {"set/other|start": torch.zeros(3, 16)}):
        with pytest.raises(DataError, match="does not fit the constraints"):
            only_hard.load_state_dict(wrong)


@pytest.mark.parametrize("soft_on", [None, "gradient", "update"])
def test_float_error_does_not_build_up(soft_on):
    """After 1000 steps as after 100, what lies inside the space is one rounding of the values, not a sum.

    A soft rule looks at each step, the hard one at all steps since the task began, even at one place.
    """
    shares = []
    for steps in (100, 1000):
        parameter, closed = parameter_of(2, 16), space_of(16, 1, (6,))
        start = parameter.detach().clone()
        site = site_of(parameter)
        rules = [hard(site, closed)]
        if soft_on is not None:
            rules.append(soft(site, space_of(16, 1, (4,), seed=1), 0.5, soft_on))
        train(parameter, Protection(rules), torch.optim.SGD([parameter], lr=1e-4), steps)
        shares.append(float(closed.on((parameter - start).detach().double()).norm()))
    assert max(shares) < math.sqrt(32) * torch.finfo(torch.float32).eps * 4
