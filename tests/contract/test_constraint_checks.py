"""Checks of constraints: registered ones pass them, broken ones fail the one they break."""

from __future__ import annotations

import random

import attrs
import pytest
import torch

from broken_components import Broken, kept
from lw2g.interfaces.component import ConstraintComponent, NoOptions
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.site import Restriction
from lw2g.maths.subspace import Subspace
from lw2g_testing import ContractCase, contract_cases


def constraint(name: str, cls: type[Constraint]) -> ConstraintComponent:
    return ConstraintComponent(name=name, config=NoOptions, summary="for tests", build=cls)


BROKEN = Broken(constraint)
breaks = BROKEN.breaks


class Sane(Constraint):
    """The orthogonal condition at plain sites, with spaces and a loss of its own: it keeps every promise."""

    needs_memory = True
    absorbs = True

    def __init__(self, config, context) -> None:
        self.seen = torch.zeros(())

    def restriction(self, site, context):
        space = context.memory.space(context.set_id, site)
        return None if space is None else self.bent(Restriction(subspace=space))

    def bent(self, restriction):
        return restriction

    def absorb(self, site, moment, context):
        self.seen = self.seen + moment.trace()

    def extra_loss(self, batch, output, context):
        if output.features is None:
            return None
        noise = torch.randn(output.features.shape)
        return (output.features * noise).mean() + self.seen.log1p()

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


@breaks("constraint_lives_through_a_run", "in task 1, .* raises AttributeError.*return None")
class NeedsHistory(Sane):
    def restriction(self, site, context):
        return Restriction(subspace=context.memory.space(context.set_id, site).to(dtype=torch.float64))


@breaks("constraint_lives_through_a_run", "begin_task raises IndexError.*the first too")
class LooksBack(Sane):
    def begin_task(self, context):
        self.before = [info.index for info in context.history[:-1]][-1]


@breaks("constraint_lives_through_a_run", "on is 'step'; set it to 'update' or 'gradient'")
class AnotherMoment(Sane):
    on = "step"


@breaks("restrictions_take_away_alone", "rows of 32 and gets a space of 16")
class HalfWidth(Sane):
    def bent(self, restriction):
        return Restriction(subspace=Subspace.empty(16))


@breaks("restrictions_take_away_alone", "strength 0.5.*declare hard = False")
class HalfHard(Sane):
    def bent(self, restriction):
        return attrs.evolve(restriction, strength=0.5)


@breaks("restrictions_take_away_alone", "zero at site .* becomes nan")
class NotANumber(Sane):
    def bent(self, restriction):
        return Restriction(subspace=attrs.evolve(restriction.subspace, basis=restriction.subspace.basis / 0))


@breaks("restrictions_take_away_alone", "return a space of orthonormal columns")
class LongColumns(Sane):
    def bent(self, restriction):
        return Restriction(subspace=attrs.evolve(restriction.subspace, basis=restriction.subspace.basis * 2))


@breaks("restrictions_take_away_alone", "removes more than once; return a space")
class ShortColumns(Sane):
    def bent(self, restriction):
        return Restriction(subspace=attrs.evolve(restriction.subspace, basis=restriction.subspace.basis / 2))


@breaks("asks_for_what_it_reads", "declares needs_memory = False")
class ReadsInSecret(Sane):
    needs_memory = False


@breaks("asks_for_what_it_reads", "declares absorbs = False; declare it True")
class NeverCalled(Sane):
    absorbs = False


@breaks("constraint_state_round_trips", "keep all that absorb and begin_task have learned")
class Forgets(Sane):
    def load_state_dict(self, state):
        pass


@breaks("constraint_state_round_trips", "'seen', which is no tensor")
class KeepsNumbers(Sane):
    def state_dict(self):
        return {"seen": float(self.seen)}


@breaks("constraint_lives_through_a_run", "without dimensions")
class LossPerSample(Sane):
    def extra_loss(self, batch, output, context):
        return torch.zeros(len(batch))


@breaks("constraint_lives_through_a_run", "return a finite tensor")
class DividesByZero(Sane):
    def extra_loss(self, batch, output, context):
        return output.loss / context.task.index


@breaks("extra_loss_leaves_the_host_alone", "gradient into the backbone; it is frozen")
class TrainsTheBackbone(Sane):
    def extra_loss(self, batch, output, context):
        context.backbone.requires_grad_(True)
        return context.backbone.features(batch.images).mean()


@breaks("extra_loss_leaves_the_host_alone", "changes values or gradients of the host")
class ScalesFeatures(Sane):
    def extra_loss(self, batch, output, context):
        batch.query.mul_(0.5)


@breaks("extra_loss_leaves_the_host_alone", "changes values or gradients of the host")
class CallsBackward(Sane):
    def extra_loss(self, batch, output, context):
        output.loss.backward(retain_graph=True)


@breaks("extra_loss_leaves_the_host_alone", "extra_loss draws from the global generator of random")
class DrawsFromPython(Sane):
    def extra_loss(self, batch, output, context):
        return output.loss * random.random()


@breaks("restriction_draws_nothing", "restriction draws from the global generator of torch")
class DrawsForARule(Constraint):
    """It has restrictions alone, and no loss."""

    def __init__(self, config, context):
        pass

    def restriction(self, site, context):
        torch.randn(3)


@breaks("extra_loss_leaves_the_host_alone", "begin_task draws from the global generator of torch")
class DrawsEarly(Sane):
    def begin_task(self, context):
        self.noise = torch.randn(3)


@breaks("extra_loss_leaves_the_host_alone", "for one batch and one torch seed")
class OwnGenerator(Sane):
    def __init__(self, config, context):
        super().__init__(config, context)
        self.generator = torch.Generator().manual_seed(1)

    def extra_loss(self, batch, output, context):
        return output.loss * torch.rand((), generator=self.generator)


@breaks("constraint_lives_through_a_run", "without keys and features, .* extra_loss raises AttributeError")
class NeedsFeatures(Sane):
    def extra_loss(self, batch, output, context):
        return output.features.mean()


@breaks("constraint_lives_through_a_run", "begin_task raises AttributeError")
class NeedsKeys(Sane):
    def begin_task(self, context):
        self.keys = context.task.retrieval.keys(context.task)


@breaks("overrides_what_it_means", r"^lw2g never calls restrictions \(.*:\d+\), but restriction; rename it")
class Misspelt(Constraint):
    def __init__(self, config, context):
        pass

    def restrictions(self, site, context):
        return None


OTHERWISE = {"lgcl": {"encoder": "hash"}}
"""Options of components that need more than their defaults."""

CASES = [case for case in kept("constraint") if case.subject.component.name not in OTHERWISE]
CASES += [case for name, options in OTHERWISE.items() for case in contract_cases(name, options=options)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_registered_constraints_keep_their_promises(case: ContractCase) -> None:
    """Every registered constraint passes every check."""
    case.run()


test_broken_ones_fail, test_every_check_is_broken, test_sane_ones_pass = BROKEN.tests("constraint", Sane)
