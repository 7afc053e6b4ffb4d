"""Checks of baselines that need no run: registered ones pass them, broken ones fail the one they break."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import torch
from torch import nn
from torch.nn import functional

from broken_baselines import SANE, BrokenBaselines, kept
from lw2g.errors import ConfigError
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.phase import ParameterGroup
from lw2g.interfaces.pool import Pool, Routing
from lw2g.registry.markers import hookimpl
from lw2g.testing import ContractCase, ContractViolation, contract_cases, tiny_catalogue
from lw2g_prompts.plugin import DUAL_PROMPT
from lw2g_prompts.plugin import L2P as L2P_COMPONENT
from lw2g_prompts.s_prompt import SPromptPlusPlus
from lw2g_retrieval.key_cosine import KeyCosine
from lw2g_retrieval.plugin import KEY_COSINE

BROKEN = BrokenBaselines()
breaks = BROKEN.breaks


@pytest.mark.parametrize("case", kept("baseline_checks", "phase_checks"), ids=str)
def test_registered_baselines_keep_their_promises(case: ContractCase) -> None:
    """Every registered baseline passes every check that needs no run."""
    case.run()


# -- building ------------------------------------------------------------------------------------------------


@breaks("builds", "give the check options.*needs a GPU")
class CannotBeBuilt(SPromptPlusPlus):
    def __init__(self, config, context):
        raise ConfigError("it needs a GPU")


@breaks("builds", "set feature_scope to one of backbone, set, ")
class OddScope(SPromptPlusPlus):
    feature_scope = "sets"


@breaks("builds", "let build return a Baseline, not 'NoBaseline'")
class NoBaseline(nn.Linear):
    def __init__(self, config, context):
        super().__init__(2, 2)


PRESETS = (
    ({"cifar100": {"baseline.epoch": 3}}, "baseline.epoch.*epochs"),
    ({"nobodys": {"baseline.lr": -1.0}}, "'nobodys': baseline.lr"),
    ({"glyphs": {"constraints.orthagonal.on": "update"}}, "orthagonal"),
    ({"glyphs": {"run.seed": 1}}, "run.seed: no such section"),
    ({"cifar100": {"backbone.name": "macro"}}, "'macro'"),
    ({"cifar100": {"benchmark.jitter": 3}}, "benchmark.jitter"),
)
"""Presets that cannot be used, and what the message points at."""


# -- sets ----------------------------------------------------------------------------------------------------


@breaks("new_sets_are_their_own", "gives 'set.key' other values under the same seed")
class UnseededSet(SPromptPlusPlus):
    def new_set(self, source):
        made = super().new_set(source)
        with torch.no_grad():
            made.key.fill_(random.random())
        return made


@breaks("new_sets_are_their_own", "in the memory of 'set 2.value'; clone")
class SharedTensor(SPromptPlusPlus):
    def new_set(self, source):
        made = super().new_set(source)
        if source is not None:
            made.value = source.value
        return made


@breaks("new_sets_are_their_own", "new_set changes 'set 2.key'")
class ChangesSource(SPromptPlusPlus):
    def new_set(self, source):
        if source is not None:
            with torch.no_grad():
                source.key.zero_()
        return super().new_set(source)


@breaks("state_is_all", "logits differ after the state dicts were loaded")
class HiddenState(SPromptPlusPlus):
    def __init__(self, config, context):
        super().__init__(config, context)
        self.mixing = torch.randn(context.backbone.dim)

    def features(self, batch, routing):
        return super().features(batch, routing) * self.mixing


@breaks("state_is_all", "one made by new_set.None.*size mismatch")
class GrowingSet(SPromptPlusPlus):
    def new_set(self, source):
        made = super().new_set(None)
        made.register_buffer("ages", torch.zeros(1 if source is None else len(source.ages) + 1))
        return made

    def source_of(self, pool):
        return pool[pool.ids[-1]] if len(pool) else None


# -- forward -------------------------------------------------------------------------------------------------


@breaks("scores_all_classes", r"a column for each of the 6 classes.*they are \[8, 2\]")
class SeenColumns(SPromptPlusPlus):
    def begin_task(self, task):
        self.seen = task.seen

    def logits(self, features):
        return super().logits(features)[:, : self.seen]


@breaks("scores_all_classes", "finite for the [24] classes seen by task [12]")
class UndefinedScores(SPromptPlusPlus):
    def logits(self, features):
        return super().logits(features).log()


@breaks("prediction_belongs_to_its_sample", "another prediction alone|in a shuffled batch.*no vote")
class BatchNorm(SPromptPlusPlus):
    def features(self, batch, routing):
        features = super().features(batch, routing)
        return features - features.mean(dim=0)


@breaks("prediction_belongs_to_its_sample", "nothing drawn at test time")
class Dropout(SPromptPlusPlus):
    def features(self, batch, routing):
        return functional.dropout(super().features(batch, routing), 0.5)


@breaks("prediction_belongs_to_its_sample", "the same for all images")
class Blind(SPromptPlusPlus):
    def features(self, batch, routing):
        return torch.ones_like(batch.query)


@breaks("a_batch_may_mix_sets", "hand out sets per sample")
class FirstSetForAll(SPromptPlusPlus):
    def features(self, batch, routing):
        chosen = routing.chosen if isinstance(routing.chosen, int) else int(routing.chosen[0])
        return super().features(batch, attrs.evolve(routing, chosen=chosen))


@breaks("a_batch_may_mix_sets", r"pool.force\(1\) differ from those under pool.route\(None\)", retrieval=None)
class ChoosesUnasked(SPromptPlusPlus):
    def features(self, batch, routing):
        return super().features(batch, attrs.evolve(routing, chosen=routing.chosen or 0))


@breaks("copies_of_a_set_do_as_it_does", "features under copies of set 0 differ")
class KnowsSetsByPlace(SPromptPlusPlus):
    def features(self, batch, routing):
        return super().features(batch, routing) + torch.as_tensor(routing.chosen).reshape(-1, 1)


@breaks("refuses_without_a_set", "something is predicted although no set was chosen")
class TakesTheFirst(SPromptPlusPlus):
    def features(self, batch, routing):
        return super().features(batch, attrs.evolve(routing, chosen=0) if routing.chosen is None else routing)


@breaks("refuses_without_a_set", "although no set was chosen raises TypeError")
class CannotTell(SPromptPlusPlus):
    def features(self, batch, routing):
        return super().features(batch, attrs.evolve(routing, chosen=routing.chosen + 0))


# -- phases --------------------------------------------------------------------------------------------------


@breaks("phases_change_nothing", "task 1 changes 'baseline.head.bias'")
class EagerPhases(SPromptPlusPlus):
    def phases(self, context):
        with torch.no_grad():
            self.head.bias += 1
        return super().phases(context)


@breaks("phases_change_nothing", 'changes "torch\'s global generator"')
class DrawingPhases(SPromptPlusPlus):
    def phases(self, context):
        torch.rand(1)
        return super().phases(context)


@breaks("phases_have_names", "several phases of task 1 are named 'prompts'")
class SameNames(SPromptPlusPlus):
    def phases(self, context):
        return (*super().phases(context), *super().phases(context))


class TrainsMore(SPromptPlusPlus):
    """Trains the set, the head, and whatever a subclass adds."""

    def more(self, context) -> Iterator[nn.Parameter]:
        raise NotImplementedError

    def phases(self, context):
        (phase,) = super().phases(context)
        added = ParameterGroup(parameters=tuple(self.more(context)), lr=1e-3)
        return (attrs.evolve(phase, groups=(*phase.groups, added)),)


@breaks("phases_train_what_is_theirs", "trains 'model.norm.weight' of backbone")
class TrainsBackbone(TrainsMore):
    def more(self, context):
        yield context.backbone.model.norm.weight


@breaks("phases_train_what_is_theirs", "'prompts' of task 3 trains 'key' of set 0")
class TrainsOldSets(TrainsMore):
    def more(self, context):
        yield from (context.pool[one].key for one in context.pool.ids if one != context.set_id)


@breaks("phases_train_what_is_theirs", "'unregistered parameter' of nobody.*so that a checkpoint holds them")
class TrainsNobodys(TrainsMore):
    def more(self, context):
        yield nn.Parameter(torch.zeros(3))


# -- the tests of the broken ones ------------------------------------------------------------------------


@pytest.mark.parametrize(("component", "check", "words"), BROKEN.cases)
def test_a_broken_baseline_fails_its_check(component: BaselineComponent, check: str, words: str) -> None:
    """The check that looks at the broken promise fails, and says what the author must do."""
    BROKEN.require_failure(component, check, words)


@pytest.mark.parametrize(("presets", "words"), PRESETS)
def test_a_preset_that_cannot_be_used_is_named(presets: dict[str, Any], words: str) -> None:
    """A misspelt option, a value out of range, a constraint or section that is not there."""
    component = attrs.evolve(SANE, name="broken-preset", presets=presets, tuned={})
    (case,) = [one for one in contract_cases(component) if one.check.name == "presets_name_options"]
    with pytest.raises(ContractViolation, match=words):
        case.run()


@pytest.mark.parametrize(
    ("component", "options"),
    [(DUAL_PROMPT, {"gather": "reshaped"}), (L2P_COMPONENT, {"vote": "batch"})],
)
def test_literal_variants_are_seen_to_mix_the_batch(
    component: BaselineComponent, options: dict[str, Any]
) -> None:
    """The released forms that let an image's company decide break the promise that the defaults keep."""
    cases = contract_cases(component, options=options)
    (case,) = [one for one in cases if one.check.name == "prediction_belongs_to_its_sample"]
    with pytest.raises(ContractViolation, match="no vote, no statistics and no reshaping over the batch"):
        case.run()


def test_a_pool_that_lets_nothing_through_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were an empty pool to route, a baseline on plain features would predict before the first task."""
    monkeypatch.setattr(Pool, "route", lambda self, chosen: Routing(sets=self.sets, chosen=chosen))
    (case,) = [one for one in contract_cases("no-prompt") if one.check.name == "refuses_without_a_set"]
    with pytest.raises(ContractViolation, match="something is predicted before the first task"):
        case.run()


def test_an_empty_pool_says_what_to_do_first() -> None:
    """No routing leaves an empty pool, nor one to a set that is not there."""
    pool = Pool()
    for ask in (lambda: pool.route(None), lambda: pool.force(0)):
        with pytest.raises(ValueError, match=r"learn a task .or call grow. first"):
            ask()
    pool.grow(nn.Linear(1, 1))
    with pytest.raises(ValueError, match=r"one of the live sets \[0\] but got 3"):
        pool.force(3)
    assert pool.force(0).chosen == 0


class VotingKeys(KeyCosine):
    """A strategy that lets a batch vote."""

    def retrieve(self, query, seen, task_of_class):
        return super().retrieve(query, seen, task_of_class).mode().values.expand(len(query))


class NamelessErrors(SPromptPlusPlus):
    """Fails without a word."""

    def sites(self, parameters):
        raise KeyError


@pytest.mark.parametrize("guilty", ["retrieval", "baseline"])
def test_a_failure_is_laid_at_the_door_of_its_cause(guilty: str) -> None:
    """A sound baseline whose default retrieval votes is not blamed for it; one that votes itself is."""
    votes = attrs.evolve(KEY_COSINE, name="votes", build=VotingKeys)

    class Both:
        @hookimpl
        def lw2g_retrievals(self) -> list[Any]:
            return [votes]

        @hookimpl
        def lw2g_baselines(self) -> list[Any]:
            return [component]

    base, options = (SANE, {}) if guilty == "retrieval" else (DUAL_PROMPT, {"gather": "reshaped"})
    component = attrs.evolve(base, name="led-astray", retrieval="votes", presets={}, tuned={})
    cases = contract_cases(component, catalogue=tiny_catalogue(Both()), options=options)
    (case,) = [one for one in cases if one.check.name == "prediction_belongs_to_its_sample"]
    result = case.result()
    assert result.status == "failed"
    assert "an image gets another prediction" in result.message
    assert result.cause == ("retrieval votes" if guilty == "retrieval" else None)
    assert ("see `lw2g check votes`" in result.message) == (guilty == "retrieval")


def test_no_failure_is_without_its_reason() -> None:
    """An error that says nothing is told by its type and the place where it was raised."""
    component = attrs.evolve(SANE, name="mute", build=NamelessErrors, presets={}, tuned={})
    failed = [case.result() for case in contract_cases(component) if case.check.name.startswith("site")]
    assert {one.status for one in failed} == {"failed"}
    for one in failed:
        assert re.search(r"KeyError: without a message \(in sites, test_baseline_checks", one.message)
