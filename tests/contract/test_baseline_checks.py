"""Checks of baselines: registered ones pass them, broken ones fail the one they break."""

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

from broken_components import Broken, evolving, kept
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.phase import ParameterGroup
from lw2g.interfaces.pool import Pool
from lw2g.registry.markers import hookimpl
from lw2g_prompts.plugin import DUAL_PROMPT, S_PROMPT_PLUS_PLUS
from lw2g_prompts.plugin import L2P as L2P_COMPONENT
from lw2g_prompts.s_prompt import SPromptPlusPlus
from lw2g_retrieval.key_cosine import KeyCosine
from lw2g_retrieval.plugin import KEY_COSINE
from lw2g_testing import ContractCase, ContractViolation, contract_cases, tiny_catalogue

SANE = S_PROMPT_PLUS_PLUS
"""What the broken ones derive from: it keeps every promise."""

BROKEN = Broken(evolving(SANE, presets={}, tuned={}))
breaks = BROKEN.breaks


@pytest.mark.parametrize("case", kept("baseline"), ids=str)
def test_registered_baselines_keep_their_promises(case: ContractCase) -> None:
    """Every registered baseline passes every check."""
    case.run()


# -- building ------------------------------------------------------------------------------------------------


@breaks("learns_a_small_stream", "^cannot be built: ConfigError: it needs a GPU.*give the check options")
class CannotBeBuilt(SPromptPlusPlus):
    def __init__(self, config, context):
        raise ConfigError("it needs a GPU")


# no option and no larger benchmark mends it: these are not spoken of
@breaks("learns_a_small_stream", "^cannot be built: TypeError: Can't instantiate(?!.*tiny).*new_set")
class HasNoSet(Baseline):
    pass


@breaks("learns_a_small_stream", "'NoBaseline' has no 'begin_task', so it is no baseline")
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


@breaks("resumes_to_the_same_bits", "of two runs with the same seed differ after task 1")
class UnseededSet(SPromptPlusPlus):
    def new_set(self, source):
        made = super().new_set(source)
        with torch.no_grad():
            made.key.fill_(random.random())
        return made


@breaks("other_sets_stay", "has set 1, changes 'set 0.value'; let new_set clone")
class SharedTensor(SPromptPlusPlus):
    def new_set(self, source):
        made = super().new_set(source)
        if source is not None:
            made.value = source.value
        return made


@breaks("new_sets_are_new", r"^new_set \(.*baseline_checks\.py:\d+\) returns the set that it starts from")
class HandsSourceOn(SPromptPlusPlus):
    def new_set(self, source):
        return source or super().new_set(None)

    def source_of(self, pool):
        return None  # a run gives it none, so that its other checks see nothing


@breaks("learns_a_small_stream", r"new_set: returned the set that it starts from; return a copy .*py:\d+\)$")
class SharesItsSets(HandsSourceOn):
    def source_of(self, pool):
        return pool.newest


@breaks("other_sets_stay", "has set 1, changes 'set 0.key'; let new_set clone")
class ChangesSource(SPromptPlusPlus):
    def new_set(self, source):
        if source is not None:
            with torch.no_grad():
                source.key.zero_()
        return super().new_set(source)


@breaks("checkpoint_predicts_the_same", "size mismatch for ages.*one made by new_set.None")
class GrowingSet(SPromptPlusPlus):
    def new_set(self, source):
        made = super().new_set(None)
        made.register_buffer("ages", torch.zeros(1 if source is None else len(source.ages) + 1))
        return made

    def source_of(self, pool):
        return pool[pool.ids[-1]] if len(pool) else None


# -- forward -------------------------------------------------------------------------------------------------


@breaks(
    "learns_a_small_stream", "^no task changes the parameter 'baseline.idle.weight'; put it into the groups"
)
class IdleHead(SPromptPlusPlus):
    def __init__(self, config, context):
        super().__init__(config, context)
        self.idle = nn.Linear(2, 2)


@breaks(
    "learns_a_small_stream",
    r"^phases \(.*:\d+\) returns no phase, so that no task changes the parameter .*; return a TrainingPhase",
)
class NoPhases(SPromptPlusPlus):
    def phases(self, context):
        return []


@breaks("learns_a_small_stream", r"^no task changes the parameter 'set 0.*, in phases \(.*:\d+\), or")
class IdleSets(SPromptPlusPlus):
    def phases(self, context):
        phase, *_ = super().phases(context)
        own = {id(one) for one in context.parameters.parameters()}
        rest = [one for one in phase.trained if id(one) not in own]
        return [attrs.evolve(phase, groups=(ParameterGroup(parameters=rest, lr=0.1),))]


# before what comes of it, and by the line that returns
@breaks(
    "learns_a_small_stream",
    r"^logits returns \[27, 2\] .*; return a tensor \[27, 7\].*in logits: return super",
)
class FewLogits(SPromptPlusPlus):
    def logits(self, features):
        return super().logits(features)[:, :2]


@breaks(
    "learns_a_small_stream",
    r"^features returns \[27\] .*; return a tensor \[27, F\], .*in features: return super",
)
class FlatFeatures(SPromptPlusPlus):
    def features(self, batch, routing):
        return super().features(batch, routing).mean(dim=1)


@breaks("learns_a_small_stream", "logits of sample 'test/0' are not finite")
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


@breaks("prediction_belongs_to_its_sample", r"let .* and logits \(.*_checks\.py:\d+\) compute")
class DropsLogits(SPromptPlusPlus):
    def logits(self, features):
        return super().logits(functional.dropout(features, 0.5))


@breaks("prediction_belongs_to_its_sample", "the same for all images")
class Blind(SPromptPlusPlus):
    def features(self, batch, routing):
        return torch.ones_like(batch.query)


@breaks("sets_answer_as_chosen", "hand out sets per sample")
class FirstSetForAll(SPromptPlusPlus):
    def features(self, batch, routing):
        chosen = routing.chosen if isinstance(routing.chosen, int) else int(routing.chosen[0])
        return super().features(batch, attrs.evolve(routing, chosen=chosen))


@breaks(
    "sets_answer_as_chosen", r"pool.force\(1\) differ from those under pool.route\(None\)", retrieval=None
)
class ChoosesUnasked(SPromptPlusPlus):
    def features(self, batch, routing):
        return super().features(batch, attrs.evolve(routing, chosen=routing.chosen or 0))


@breaks("sets_answer_as_chosen", "features under copies of set 0 differ")
class KnowsSetsByPlace(SPromptPlusPlus):
    def features(self, batch, routing):
        return super().features(batch, routing) + torch.as_tensor(routing.chosen).reshape(-1, 1)


# -- phases --------------------------------------------------------------------------------------------------


@breaks("phases_are_a_plan", "task 1 changes 'baseline.head.bias'")
class EagerPhases(SPromptPlusPlus):
    def phases(self, context):
        with torch.no_grad():
            self.head.bias += 1
        return super().phases(context)


@breaks("phases_are_a_plan", 'changes "torch\'s global generator"')
class DrawingPhases(SPromptPlusPlus):
    def phases(self, context):
        torch.rand(1)
        return super().phases(context)


@breaks("phases_are_a_plan", "several phases of task 1 are named 'prompts'")
class SameNames(SPromptPlusPlus):
    def phases(self, context):
        return (*super().phases(context), *super().phases(context))


@breaks(
    "phases_are_a_plan", "'prompts' of task 2 trains, and trained_tasks = 1 says that no phase of it does"
)
class TrainsTooLong(SPromptPlusPlus):
    trained_tasks = 1


class TrainsMore(SPromptPlusPlus):
    """Trains the set, the head, and whatever a subclass adds."""

    def more(self, context) -> Iterator[nn.Parameter]:
        raise NotImplementedError

    def phases(self, context):
        (phase,) = super().phases(context)
        added = ParameterGroup(parameters=tuple(self.more(context)), lr=1e-3)
        return (attrs.evolve(phase, groups=(*phase.groups, added)),)


@breaks("phases_are_a_plan", "trains 'model.norm.weight' of backbone")
class TrainsBackbone(TrainsMore):
    def more(self, context):
        yield context.backbone.model.norm.weight


@breaks("phases_are_a_plan", "'prompts' of task 3 trains 'key' of set 0")
class TrainsOldSets(TrainsMore):
    def more(self, context):
        yield from (context.pool[one].key for one in context.pool.ids if one != context.set_id)


@breaks("phases_are_a_plan", "trains a parameter that no module holds.*ParameterList.*checkpoint holds")
class TrainsNobodys(TrainsMore):
    def more(self, context):
        yield nn.Parameter(torch.zeros(3))


# -- the tests of the broken ones ------------------------------------------------------------------------


test_broken_ones_fail = pytest.mark.slow(BROKEN.fail())  # a small run each


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


@pytest.mark.parametrize("mixed", [BatchNorm, DropsLogits])
def test_what_comes_of_a_mixed_batch_is_not_told_as_faults_of_their_own(mixed: type) -> None:
    """Their remedies would lead away from the one that helps."""
    results = [case.result() for case in contract_cases(BROKEN.record("mixed", mixed))]
    assert [one.check for one in results if one.status == "failed"] == ["prediction_belongs_to_its_sample"]
    skipped = {
        one.check for one in results if one.message.startswith("not tried: answers depend on the batch")
    }
    assert skipped == {
        *("sets_answer_as_chosen", "cached_features_hold"),
        *("checkpoint_predicts_the_same", "head_is_drawn_anew"),
    }


@pytest.mark.slow
def test_a_method_whose_later_tasks_train_nothing_keeps_every_promise() -> None:
    """Under a head in closed form, which learns them."""
    cases = contract_cases("slca-plus-plus", options={"head": "lda", "trained_tasks": 1})
    assert {case.result().status for case in cases} == {"passed"}


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

    def scores(self, query, seen, task_of_class):
        return super().scores(query, seen, task_of_class).mean(dim=0).expand(len(query), -1)


class NamelessErrors(SPromptPlusPlus):
    """Fails without a word."""

    def sites(self, parameters):
        raise KeyError


def test_a_strategy_that_is_broken_itself_is_to_be_checked_first() -> None:
    """A sound baseline whose default retrieval votes fails, and the message says where to look."""
    votes = attrs.evolve(KEY_COSINE, name="votes", build=VotingKeys)

    class Both:
        @hookimpl
        def lw2g_retrievals(self) -> list[Any]:
            return [votes]

        @hookimpl
        def lw2g_baselines(self) -> list[Any]:
            return [component]

    component = attrs.evolve(SANE, name="led-astray", retrieval="votes", presets={}, tuned={})
    cases = contract_cases(component, catalogue=tiny_catalogue(Both()))
    (case,) = [one for one in cases if one.check.name == "prediction_belongs_to_its_sample"]
    with pytest.raises(ContractViolation, match=r"see `lw2g check votes` first.*an image gets another"):
        case.run()


def test_a_check_that_says_nothing_is_not_collected() -> None:
    """Of a record without sites none of sites is collected, and of a fixed set none of evidence."""
    plain, grown = (
        {case.check.name for case in contract_cases(name)} for name in ("aper-adapter", SANE.name)
    )
    about = {"sites_are_what_they_say", "protection_holds", "evidence_changes_nothing", "head_is_drawn_anew"}
    assert not about & plain
    assert about <= grown


def test_no_failure_is_without_its_reason() -> None:
    """An error that says nothing is told by its type and the place where it was raised."""
    component = attrs.evolve(SANE, name="mute", build=NamelessErrors, presets={}, tuned={})
    failed = [case.result() for case in contract_cases(component) if case.check.name.startswith("site")]
    assert {one.status for one in failed} == {"failed"}
    for one in failed:
        assert re.search(
            r"KeyError: without a message \(.*test_baseline_checks\.py:[0-9]+, in sites: ", one.message
        )
