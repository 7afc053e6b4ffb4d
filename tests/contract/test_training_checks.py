"""Checks of baselines in small runs: broken ones fail the one they break."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from torch.nn.functional import cross_entropy

from broken_components import Broken, evolving
from listening import At, power_cut
from lw2g.blocks.statistics import collect_features
from lw2g.config.resolve import Resolved
from lw2g.errors import DataError
from lw2g.interfaces.phase import ComputePhase, ParameterGroup, StepOutput
from lw2g.interfaces.scope import SET
from lw2g.interfaces.tracker import EpochEnded
from lw2g.lifecycle.runner import start
from lw2g.model.saved import open_model
from lw2g.registry.catalogue import Catalogue
from lw2g_prompts.dual_prompt import DualPrompt
from lw2g_prompts.plugin import DUAL_PROMPT, S_PROMPT_PLUS_PLUS
from lw2g_prompts.s_prompt import SPromptPlusPlus
from lw2g_testing import ContractViolation, contract_cases

BROKEN = Broken(evolving(S_PROMPT_PLUS_PLUS, presets={}, tuned={}))
breaks = BROKEN.breaks


# -- runs ----------------------------------------------------------------------------------------------------


# a mistake in the component's own line is mended there, and by no option
@breaks("learns_a_small_stream", r"^IndexError: without a message \([^;]*raise IndexError\)$")
class FailsInTraining(SPromptPlusPlus):
    def step(self, batch, context):
        raise IndexError


@breaks("learns_a_small_stream", r"FrozenInstanceError: .*; change a copy: attrs\.evolve.* in step: ")
class AssignsTheLoss(SPromptPlusPlus):
    def step(self, batch, context):
        output = super().step(batch, context)
        output.loss = output.loss + 1
        return output


@breaks("steps_teach_the_labels", r"in task 3 the loss falls as .*batch\.labels, which are numbers of")
class CountsLabelsWithinTheTask(SPromptPlusPlus):
    def step(self, batch, context):
        features = self.features(batch, context.pool.force(context.set_id))
        labels = batch.labels - min(context.task.classes)
        return StepOutput(loss=cross_entropy(self.logits(features), labels), features=features)


# beside such rows the softmax of new classes underflows, and they have no gradient
@breaks("steps_teach_the_labels", r"in task 3 the loss falls as .*batch\.labels, which are numbers of")
class ComputesAHeadOfLargeRows(CountsLabelsWithinTheTask):
    def phases(self, context):
        return (*super().phases(context), ComputePhase(name="rows", run=lambda progress: self.rows(context)))

    def rows(self, context):
        for label in context.task.classes:
            self.head.weight[label] = 1e4 * self.head.weight[label].sign()


@breaks(
    "steps_write_no_gradient", r"phase 'prompts' leaves a gradient.*without calling backward.*step \(.*:\d+\)"
)
class GoesBackItself(SPromptPlusPlus):
    def step(self, batch, context):
        output = super().step(batch, context)
        output.loss.backward(retain_graph=True)
        return output


@breaks(
    "learns_a_small_stream", r"phase 'rows' of task 2 writes NaN into 'head.weight'; .*context\.task\.classes"
)
class AveragesAbsentClasses(SPromptPlusPlus):
    def phases(self, context):
        return (*super().phases(context), ComputePhase(name="rows", run=lambda progress: self.rows(context)))

    def rows(self, context):
        rows, labels = collect_features(context, lambda batch: batch.query, lambda done, total: None)
        for label in range(len(context.task.classes)):
            self.head.weight[label] = rows[labels == label].mean(0)


class TrainsItsHeadOnOtherLabels(SPromptPlusPlus):
    def step(self, batch, context):
        features = self.features(batch, context.pool.force(context.set_id))
        labels = batch.labels - min(context.task.classes)
        return StepOutput(loss=cross_entropy(self.head(features), labels), features=features)


@breaks("steps_teach_the_labels", "return a loss that is to be minimised")
class ClimbsItsLoss(SPromptPlusPlus):
    def step(self, batch, context):
        output = super().step(batch, context)
        return attrs.evolve(output, loss=-output.loss)


class HeadPerTask(torch.nn.Module):
    """A linear head for the classes of each task, side by side."""

    def __init__(self, dim):
        super().__init__()
        self.tasks = torch.nn.ModuleList(torch.nn.Linear(dim, classes) for classes in (2, 3, 2))

    def forward(self, features):
        return torch.cat([head(features) for head in self.tasks], dim=1)


class ClassifierPerTask(SPromptPlusPlus):
    """Trains the classifier of the task alone, on labels within the task; its step asks for no logits."""

    def new_head(self):
        return HeadPerTask(self.context.backbone.width)

    def own_loss(self, logits, labels):
        return cross_entropy(logits, labels)

    def step(self, batch, context):
        features = self.features(batch, context.pool.force(context.set_id))
        logits = self.head.tasks[context.task.index](features)
        labels = batch.labels - min(context.task.classes)
        return StepOutput(loss=self.own_loss(logits, labels), features=features)


class KeepsToOldAnswers(ClassifierPerTask):
    """Pulls all logits of the task down, much more than labels raise them."""

    def own_loss(self, logits, labels):
        return cross_entropy(logits, labels) + 100 * logits.exp().sum()


@breaks("steps_teach_the_labels", "in task 3 .* another class of the task likelier than the images' own")
class ShiftsItsLabels(ClassifierPerTask):
    def own_loss(self, logits, labels):
        return cross_entropy(logits, (labels + 1) % logits.shape[1])


@breaks("steps_teach_the_labels", "another class of the task likelier")
class ClimbsWithinTheTask(ClassifierPerTask):
    def own_loss(self, logits, labels):
        return -cross_entropy(logits, labels)


@breaks("steps_teach_the_labels", "another class of the task likelier")
class TurnsItsAnswersRound(ClassifierPerTask):
    def logits(self, features):
        return super().logits(features)[:, [1, 0, 2, 3, 4, 6, 5]]


class RunsMore(SPromptPlusPlus):
    """Does something after training."""

    def more(self, context) -> None:
        raise NotImplementedError

    def phases(self, context):
        return (*super().phases(context), ComputePhase(name="more", run=lambda progress: self.more(context)))


@breaks("answers_without_what_only_learning_reads", "predictions differ|are not finite")
class LeavesItsHeadBehind(SPromptPlusPlus):
    learning_only = ("head",)


@breaks("answers_without_what_only_learning_reads", r"learning_only \('haed',\) names nothing")
class NamesNothing(SPromptPlusPlus):
    learning_only = ("haed",)


@breaks(
    "learns_a_small_stream", "baseline '.*', features: returned features without a gradient; compute them"
)
class DetachesFeatures(SPromptPlusPlus):
    def features(self, batch, routing):
        return super().features(batch, routing).detach()


@breaks("learns_a_small_stream", "baseline '.*', probe_loss: returned a loss without a gradient; compute it")
class DetachesTheProbe(SPromptPlusPlus):
    def step(self, batch, context):
        features = self.features(batch, context.pool.force(context.set_id))
        return StepOutput(loss=super().probe_loss(features, batch, context.task), features=features)

    def probe_loss(self, features, batch, task):
        return super().probe_loss(features, batch, task).detach()


# its step is inherited from lw2g: the line is that of what this one calls
@breaks(
    "learns_a_small_stream",
    r"the loss of phase '.*' has no gradient; .* \(it calls probe_loss: .*test_training_checks\.py:\d+\)$",
    retrieval="centroids",  # without a loss of its own
)
class DetachesTheLoss(SPromptPlusPlus):
    def probe_loss(self, features, batch, task):
        return super().probe_loss(features, batch, task).detach()


# its step is lw2g's: the line is that of the function that changes what this one returns
@breaks(
    "learns_a_small_stream",
    r"step: returned tensor.*, given to its phase at .*test_training_checks\.py:\d+; return .* as loss$",
)
class GivesTheLossAlone(SPromptPlusPlus):
    def phases(self, context):
        (phase,) = super().phases(context)
        return [attrs.evolve(phase, step=lambda batch: self.step(batch, context).loss)]


class Seeds(SPromptPlusPlus):
    """Seeds torch's generator, which a subclass does at one of three places."""

    place = ""

    def __init__(self, config, context):
        self._seed("build")
        super().__init__(config, context)

    def _seed(self, place):
        if place == self.place:
            torch.manual_seed(0)

    def new_set(self, source):
        self._seed("new_set")
        return super().new_set(source)

    def step(self, batch, context):
        self._seed("step")
        return super().step(batch, context)


@breaks("seeds_no_generator", "^build seeds torch's global generator")
class SeedsTheBuild(Seeds):
    place = "build"


@breaks("seeds_no_generator", "^new_set seeds torch's global generator")
class SeedsTheSet(Seeds):
    place = "new_set"


@breaks("seeds_no_generator", "^the step of phase 'prompts' seeds torch's global generator")
class SeedsTheStep(Seeds):
    place = "step"


@breaks(
    "backbone_is_untouched", "the frozen backbone's 'norm.weight' has changed during task 1(?!.*lw2g check)"
)
class ScalesBackbone(RunsMore):
    def more(self, context):
        context.backbone.model.norm.weight.data *= 1.0001


@breaks("backbone_is_untouched", "backbone.model.cls_token is left with a gradient or requires one")
class ThawsBackbone(RunsMore):
    def more(self, context):
        context.backbone.model.cls_token.requires_grad_(True)


@breaks(
    "backbone_is_untouched",
    "'model.blocks.0' of the backbone has gained 3 in _forward_hooks and lost nothing",
)
class LeavesAHook(RunsMore):
    def more(self, context):
        context.backbone.model.blocks[0].register_forward_hook(lambda *_: None)


@breaks("backbone_is_untouched", "'model.blocks.1.attn' of the backbone has gained attribute forward")
class LeavesAWrapper(RunsMore):
    def more(self, context):
        attention = context.backbone.model.blocks[1].attn
        attention.forward = type(attention).forward.__get__(attention)


@breaks("other_sets_stay", "learning task 3, which has set 1, changes 'set 0.value'")
class WritesIntoOthers(RunsMore):
    def more(self, context):
        with torch.no_grad():
            context.pool[0].value *= 1.1


@breaks("cached_features_hold", "though the scope 'set' says", base=DUAL_PROMPT)
class UnderstatedScope(DualPrompt):
    scope = SET


@breaks("evidence_changes_nothing", "changes 'baseline.probes'")
class CountsProbes(SPromptPlusPlus):
    def __init__(self, config, context):
        super().__init__(config, context)
        self.register_buffer("probes", torch.zeros(()))

    def probe_loss(self, features, batch, task):
        self.probes += 1
        return super().probe_loss(features, batch, task)


@breaks("evidence_changes_nothing", "changes 'requires_grad or grad of set 0.key'")
class LeavesGradients(SPromptPlusPlus):
    takes_copies = False  # else the gradients are left in a copy, which harms nobody

    def features(self, batch, routing):
        key = routing.sets[0].key
        found = super().features(batch, routing)
        if key.requires_grad:
            found.sum().backward(retain_graph=True)
        return found


@breaks("resumes_to_the_same_bits", "of two runs with the same seed differ after task 1")
class UnseededNoise(SPromptPlusPlus):
    def step(self, batch, context):
        output = super().step(batch, context)
        return attrs.evolve(output, loss=output.loss * (1 + random.random()))


@breaks("resumes_to_the_same_bits", "of a resumed run and of an uninterrupted one differ after task 2")
class CountsSteps(SPromptPlusPlus):
    steps = 0

    def step(self, batch, context):
        output = super().step(batch, context)
        self.steps += 1
        return attrs.evolve(output, loss=output.loss * self.steps)


@breaks(
    "resumes_to_the_same_bits",
    r"^attribute 'baseline.steps' is \d+ at the end of a run and \d+ at that of a resumed one; .* a buffer",
)
class CountsStepsForLater(SPromptPlusPlus):
    """Which shows in no tensor of a small run."""

    steps = 0

    def step(self, batch, context):
        self.steps += 1
        output = super().step(batch, context)
        return attrs.evolve(output, loss=output.loss * (1 + self.steps // 1000))


@breaks("checkpoint_predicts_the_same", "loaded from the checkpoint of task 1, features")
class RemembersOutside(SPromptPlusPlus):
    scale = 1.0

    def step(self, batch, context):
        self.scale += 0.1
        return super().step(batch, context)

    def features(self, batch, routing):
        return super().features(batch, routing) * self.scale


@breaks("protection_holds", "site '0/blocks.0.prefix_key' moves by .* inside the space")
class TrainsUnprotected(SPromptPlusPlus):
    def phases(self, context):
        (phase,) = super().phases(context)
        return (attrs.evolve(phase, host=False),)


@breaks("protection_holds", "site '0/blocks.0.prefix_key' moves by .* inside the space")
class MovesInAComputePhase(RunsMore):
    def more(self, context):
        with torch.no_grad():
            context.parameters.key += 0.01


@breaks("protection_holds", "no site of a reused set, or shared one, is trained in task 2")
class TrainsNewSetsOnly(SPromptPlusPlus):
    def phases(self, context):
        (phase,) = super().phases(context)
        if context.grew:
            return (phase,)
        head = ParameterGroup(parameters=tuple(self.head.parameters()), lr=1e-3)
        return (attrs.evolve(phase, groups=(head,)),)


# -- the tests of the broken ones ------------------------------------------------------------------------


test_broken_ones_fail = pytest.mark.slow(BROKEN.fail())  # a small run each


@pytest.mark.slow
def test_steps_are_held_to_the_labels_where_a_closed_form_head_predicts() -> None:
    """What is trained is then no logits of the method, and the answers are right all the same."""
    record = attrs.evolve(S_PROMPT_PLUS_PLUS, name="other", build=TrainsItsHeadOnOtherLabels)
    cases = contract_cases(record, options={"head": "lda"})
    case = next(one for one in cases if one.check.name == "steps_teach_the_labels")
    with pytest.raises(ContractViolation, match="in task 3 the loss falls as"):
        case.run()


@pytest.mark.slow
@pytest.mark.parametrize("build", [ClassifierPerTask, KeepsToOldAnswers], ids=lambda build: build.__name__)
def test_right_labels_pass_wherever_a_classifier_stands(build: Any) -> None:
    """In a head of the task, and beside a loss that outweighs what the labels say."""
    cases = contract_cases(attrs.evolve(S_PROMPT_PLUS_PLUS, name="other", build=build, presets={}, tuned={}))
    case = next(one for one in cases if one.check.name == "steps_teach_the_labels")
    assert case.result().message == ""


def test_a_run_without_a_finished_task_says_how_to_go_on(
    catalogue: Catalogue, quick: Any, tmp_path: Path
) -> None:
    """Prediction before the first task fails with a remedy, whether the run has begun or not."""
    resolved: Resolved = quick()
    with pytest.raises(DataError, match=r"no folder .*; give the folder of a run or a model"):
        open_model(tmp_path / "run", catalogue)
    (tmp_path / "run").mkdir()
    with pytest.raises(DataError, match=r"no model and no run at .*lw2g run"):
        open_model(tmp_path / "run", catalogue)
    cut = At(lambda event: isinstance(event, EpochEnded), power_cut)
    with pytest.raises(RuntimeError, match="power cut"):
        start(resolved, catalogue, tmp_path / "run", [cut])
    with pytest.raises(DataError, match=r"no task is finished; go on: lw2g\.resume"):
        open_model(tmp_path / "run", catalogue)
