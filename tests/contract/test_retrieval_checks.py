"""Checks of retrieval strategies: registered ones pass them, broken ones fail the one they break."""

from __future__ import annotations

import random

import attrs
import pytest
import torch
from torch import nn

from broken_components import Broken, evolving, kept
from lw2g.errors import ConfigError
from lw2g.interfaces.phase import ComputePhase, ParameterGroup, StepOutput, TrainingPhase
from lw2g_retrieval.centroids import Centroids
from lw2g_retrieval.key_cosine import KeyCosine
from lw2g_retrieval.plugin import CENTROIDS, KEY_COSINE
from lw2g_testing import ContractCase, ContractViolation, contract_cases
from lw2g_testing.moved_session import moved_session

SANE = KEY_COSINE
"""What most broken ones derive from: it keeps every promise."""

BROKEN = Broken(evolving(SANE))
breaks = BROKEN.breaks


@pytest.mark.parametrize("case", kept("retrieval"), ids=str)
def test_registered_strategies_keep_their_promises(case: ContractCase) -> None:
    """Every registered retrieval strategy passes every check."""
    case.run()


# -- what it retrieves ---------------------------------------------------------------------------------------


@breaks("learns_a_small_stream", "ConfigError: it needs wider features.* on a ViT of 6 blocks")
class CannotBeBuilt(KeyCosine):
    def __init__(self, config, context):
        raise ConfigError("it needs wider features")


@breaks("seeds_no_generator", "^build seeds torch's global generator")
class Seeds(KeyCosine):
    def __init__(self, config, context):
        torch.manual_seed(0)
        super().__init__(config, context)


@breaks("learns_a_small_stream", "'NoStrategy' has no 'begin_task', so it is no retrieval")
class NoStrategy(nn.Linear):
    def __init__(self, config, context):
        super().__init__(2, 2)


@breaks("scores_each_seen_task", r"floating numbers \[27, \d\] for 27 queries and \d seen tasks, not")
class OneScore(KeyCosine):
    def scores(self, query, seen, task_of_class):
        return super().scores(query, seen, task_of_class)[:, :1]


@breaks("prediction_belongs_to_its_sample", "another task alone|another task in a .* batch")
class Ranks(KeyCosine):
    def scores(self, query, seen, task_of_class):
        return super().scores(query - query.mean(dim=0), seen, task_of_class)


@breaks("prediction_belongs_to_its_sample", "nothing drawn at test time")
class Guesses(KeyCosine):
    def scores(self, query, seen, task_of_class):
        return torch.rand(len(query), len(seen))


@breaks("prediction_belongs_to_its_sample", r"other labels; let query \(.*:\d+\) read batch.query or")
class ReadsLabels(KeyCosine):
    def query(self, batch):
        return batch.query + 10 * batch.labels[:, None] * torch.eye(batch.query.shape[1])[0]


@breaks("scores_each_seen_task", r"let keys return \[K, 32\].* not \[32\]")
class OneFlatKey(KeyCosine):
    def keys(self, context):
        return super().keys(context)[0]


# -- its phases ----------------------------------------------------------------------------------------------


@breaks("phases_are_a_plan", "changes 'retrieval.centroid'; do it in a ComputePhase", base=CENTROIDS)
class EagerCentroids(Centroids):
    def phases(self, context):
        self.centroid += 1
        return super().phases(context)


@breaks("phases_are_a_plan", "several phases of task 1 are named 'prompts'", base=CENTROIDS)
class NamedLikeTheHosts(Centroids):
    def phases(self, context):
        return [attrs.evolve(phase, name="prompts") for phase in super().phases(context)]


@breaks("phases_are_a_plan", "'parameter_groups' of task 1 trains 'key' of set 0; .* retrieval alone")
class TrainsPrompts(KeyCosine):
    def parameter_groups(self, context, lr):
        return (ParameterGroup(parameters=(context.parameters.key,), lr=lr),)


@breaks("phases_are_a_plan", "'retrieval' of task 1 trains 'model.cls_token' of backbone")
class TrainsBackbone(KeyCosine):
    def phases(self, context):
        token = context.backbone.model.cls_token
        phase = TrainingPhase(
            name="retrieval",
            groups=(ParameterGroup(parameters=(token,), lr=0.1),),
            step=lambda batch: StepOutput(loss=token.sum()),
            epochs=1,
            batch_size=8,
        )
        return (phase,)


class RunsMore(KeyCosine):
    """Does something in a phase of its own."""

    def more(self, context) -> None:
        raise NotImplementedError

    def phases(self, context):
        return (ComputePhase(name="retrieval-more", run=lambda progress: self.more(context)),)


@breaks("phases_leave_sets_alone", "phase 'retrieval-more' of task 1 changes 'set 0.value'")
class WritesIntoSets(RunsMore):
    def more(self, context):
        with torch.no_grad():
            context.parameters.value *= 1.1


@breaks("phases_leave_sets_alone", "begin_task of task 1 changes 'set 0.key'")
class PreparesSets(KeyCosine):
    def begin_task(self, context):
        super().begin_task(context)
        with torch.no_grad():
            context.parameters.key.zero_()


# -- runs ----------------------------------------------------------------------------------------------------


@breaks("learns_a_small_stream", "^ZeroDivisionError")
class FailsInTraining(RunsMore):
    def more(self, context):
        raise ZeroDivisionError


@breaks("backbone_is_untouched", "the frozen backbone's 'norm.bias' has changed during task 1")
class ShiftsBackbone(RunsMore):
    def more(self, context):
        context.backbone.model.norm.bias.data += 1e-6


@breaks("backbone_is_untouched", "'model.blocks.2' of the backbone has gained 1 in _forward_pre_hooks")
class LeavesAHook(RunsMore):
    def more(self, context):
        if context.task.index == 0:
            context.backbone.model.blocks[2].register_forward_pre_hook(lambda *_: None)


@breaks("resumes_to_the_same_bits", "'retrieval.key.0' of two runs with the same seed differ after task 1")
class UnseededStart(KeyCosine):
    def begin_task(self, context):
        super().begin_task(context)
        with torch.no_grad():
            self.key[context.task.index].fill_(random.random())


@breaks("resumes_to_the_same_bits", "of a resumed run and of an uninterrupted one differ after task 2")
class CountsSteps(KeyCosine):
    steps = 0

    def loss(self, batch, context):
        self.steps += 1
        return super().loss(batch, context) * self.steps


@breaks("checkpoint_predicts_the_same", "loaded from the checkpoint of task 3, features or predictions")
class RemembersOutside(KeyCosine):
    last = 0

    def begin_task(self, context):
        super().begin_task(context)
        self.last = context.task.index

    def scores(self, query, seen, task_of_class):
        return torch.eye(len(seen))[[min(self.last, len(seen) - 1)] * len(query)]


# -- the tests of the broken ones ----------------------------------------------------------------------------


test_broken_ones_fail = pytest.mark.slow(BROKEN.fail())  # a small run each


def test_a_vote_over_the_test_batch_is_seen() -> None:
    """The released majority vote lets an image's company decide; the default does not."""
    cases = contract_cases("key-cosine", options={"vote": "batch"})
    (case,) = [one for one in cases if one.check.name == "prediction_belongs_to_its_sample"]
    with pytest.raises(ContractViolation, match="no vote, no statistics and no reshaping"):
        case.run()


SUBJECTS = {case.subject.component.name: case.subject for case in kept("retrieval")}


@pytest.mark.parametrize("name", sorted(SUBJECTS.keys() - {"oracle"}))
def test_the_scene_tells_tasks_apart(name: str) -> None:
    """Different tasks are retrieved for different images, so that a check of company can see something."""
    now = moved_session(SUBJECTS[name])
    _, retrieved = now.predict(now.batch(range(now.images)))
    assert retrieved is not None
    assert len(retrieved.unique()) > 1


def test_controls_are_not_asked() -> None:
    """A strategy that is told the task is asked for no scores."""
    about = {case.check.name for case in kept("retrieval") if case.subject.component.name == "oracle"}
    assert "checkpoint_predicts_the_same" in about
    assert "scores_each_seen_task" not in about
