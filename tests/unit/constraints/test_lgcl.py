"""Language guidance: its two losses, what they reach, its negatives, its tables, and its options."""

from __future__ import annotations

import json
import warnings
from types import SimpleNamespace

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.constraint import ConstraintContext
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.options import published_differences
from lw2g.interfaces.phase import StepOutput
from lw2g.interfaces.pool import Pool
from lw2g_constraints.lgcl import GuidanceOptions, LanguageGuidance, class_loss, task_loss
from lw2g_constraints.plugin import LgclConfig, lw2g_constraints
from lw2g_constraints.text import HashEncoder, class_sentence, task_sentence, write_vectors
from lw2g_retrieval.class_keys import ClassKeys
from lw2g_retrieval.key_cosine import KeyCosine
from lw2g_retrieval.options import ClassKeysConfig, KeyCosineConfig

DIM, CPU = 8, torch.device("cpu")
BUILD = BuildContext(backbone=SimpleNamespace(dim=DIM), num_tasks=4, num_classes=8, device=CPU, seed=0)
NAMES = ("apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle")
SEEDS = st.integers(0, 2**31 - 1)


class Recorder(HashEncoder):
    """Remembers what it was asked, and reads so many words; vectors have a length of their own."""

    def __init__(self, dim=DIM, limit=10**6, scale=1.0):
        super().__init__(dim)
        self.asked, self.limit, self.scale = [], limit, scale

    def fits(self, sentence):
        return len(sentence.split()) <= self.limit

    def encode(self, sentences):
        self.asked += sentences
        return self.scale * super().encode(sentences)


@attrs.define
class World:
    """Four tasks of two classes, of which some have begun."""

    retrieval: object = None
    pool: Pool = attrs.field(factory=Pool)

    def begin(self, guidance, *, reuse=None):
        """Give the next task its set and tell everybody; return its context."""
        index = len(self.pool.task_to_set)
        grew = reuse is None
        set_id = self.pool.grow(torch.nn.Module()) if grew else self.pool.reuse(reuse)
        history = tuple(
            TaskInfo(index=t, classes=(2 * t, 2 * t + 1), class_names=NAMES[2 * t : 2 * t + 2],
                     seen=2 * t + 2, num_images=1)
            for t in range(index + 1)
        )  # fmt: skip
        context = TaskContext(
            task=history[-1], history=history, pool=self.pool, set_id=set_id, grew=grew,
            retrieval=self.retrieval, backbone=BUILD.backbone, device=CPU, seed=0,
            statistics=lambda size: (),
        )  # fmt: skip
        if self.retrieval is not None:
            self.retrieval.begin_task(context)
        guidance.begin_task(ConstraintContext(task=context, memory=None, pretrained_space=None))
        return context


def guided(encoder=None, dim=DIM, names=None, **options):
    """Return language guidance with both weights 1 unless said otherwise."""
    weights = {"task_weight": 1.0, "class_weight": 1.0} | options
    return LanguageGuidance(GuidanceOptions(**weights), encoder or Recorder(), dim=dim, names=names)


def keyed(**options):
    """Return a world with learned prompt keys."""
    torch.manual_seed(3)
    return World(KeyCosine(KeyCosineConfig(**options), BUILD))


def batch_of(context, size=6):
    """Return labels of the task's classes in turn."""
    labels = torch.arange(size) % 2 + context.task.classes[0]
    return Batch(labels=labels, samples=torch.arange(size), images=None, query=None)


def features_of(size=6, seed=1, dim=DIM):
    """Return features that want a gradient."""
    return torch.randn(size, dim, generator=torch.Generator().manual_seed(seed)).requires_grad_(True)


def loss_of(guidance, context, features=None, seed=0):
    """Return what guidance adds to a step."""
    torch.manual_seed(seed)
    output = StepOutput(loss=torch.zeros(()), features=features_of() if features is None else features)
    return guidance.extra_loss(batch_of(context), output, context)


def units(sentences):
    """Return the unit vectors of sentences, computed apart."""
    return functional.normalize(HashEncoder(DIM).encode(sentences), dim=1)


CLASSES = units([class_sentence(name) for name in NAMES])
TASKS = units([task_sentence(NAMES[start : start + 2]) for start in range(0, 8, 2)])


def cosine(left, right):
    """Return the cosine by torch's own function."""
    return functional.cosine_similarity(left, right, dim=-1)


# -- the two losses -----------------------------------------------------------------------------------------


@given(seed=SEEDS, count=st.integers(1, 3), scale=st.sampled_from([1e-3, 1.0, 50.0]))
def test_the_losses_are_their_formulas(seed, count, scale):
    """Against torch's cosine, sample by sample; lengths of keys and features do not count."""
    generator = torch.Generator().manual_seed(seed)
    keys, f = (scale * torch.randn(n, 5, generator=generator) for n in (count, 4))
    texts = functional.normalize(torch.randn(9, 5, generator=generator), dim=1)
    positive, negatives, own, old = texts[0], texts[1:5], texts[1:5], texts[5:]
    by_hand = 1 - sum(cosine(key, positive) for key in keys)
    by_hand += sum(cosine(key, text) for key in keys for text in negatives) / 4
    torch.testing.assert_close(task_loss(keys, positive, negatives), by_hand, atol=1e-5, rtol=0)
    by_hand = (1 - cosine(f, own) + cosine(f, old)).mean()
    torch.testing.assert_close(class_loss(f, own, old), by_hand, atol=1e-5, rtol=0)
    order = torch.randperm(4, generator=generator)
    torch.testing.assert_close(class_loss(f[order], own[order], old[order]), by_hand, atol=1e-5, rtol=0)
    if count == 1:
        for value in (task_loss(keys, positive, negatives), class_loss(f, own, old)):
            assert -1 - 1e-5 <= float(value) <= 3 + 1e-5
        assert -1e-5 <= float(task_loss(keys, positive, None)) <= 2 + 1e-5


def test_the_bounds_are_reached():
    """A key on its text with orthogonal negatives costs 0; extremes are -1 and 3."""
    x, y = torch.eye(2)
    assert float(task_loss(7 * x[None], x, torch.stack([y, -y, y]))) == 0
    assert float(task_loss(x[None], x, -x[None])) == float(class_loss(x[None], x[None], -x[None])) == -1
    assert float(task_loss(-x[None], x, -x[None])) == float(class_loss(-x[None], x[None], -x[None])) == 3


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_lengths_of_text_vectors_do_not_count(scale):
    """Encoders need not normalise."""
    losses = []
    for factor in (1.0, scale):
        world, guidance = keyed(), guided(Recorder(scale=factor))
        world.begin(guidance)
        losses.append(loss_of(guidance, world.begin(guidance)))
    torch.testing.assert_close(*losses)


# -- a run's first and later tasks --------------------------------------------------------------------------


def test_the_first_task_pulls_its_key_alone():
    """Task 1: no class loss, and 1 - cos(key, text of the task) for the key."""
    world, guidance = keyed(), guided(task_weight=0.5)
    context = world.begin(guidance)
    key = world.retrieval.key[0].detach()
    expected = 0.5 * (1 - cosine(key, TASKS[0]))
    torch.testing.assert_close(loss_of(guidance, context).detach(), expected)
    only_class = guided(task_weight=0.0)
    assert loss_of(only_class, World().begin(only_class)) is None


def test_the_class_pull_can_begin_with_the_first_task():
    """By name, features are pulled in task 1 too; there is nothing to push from."""
    guidance = guided(task_weight=0.0, class_loss_first_task=True)
    features = features_of()
    expected = (1 - cosine(features, CLASSES[[0, 1, 0, 1, 0, 1]])).mean()
    torch.testing.assert_close(loss_of(guidance, World().begin(guidance), features), expected)


def test_mean_negatives_are_the_expectation_of_sampled_ones():
    """The mean form needs no draw and equals the average over many draws."""
    sampled, mean = guided(), guided(negatives="mean")
    for guidance in (sampled, mean):
        world = keyed()
        contexts = [world.begin(guidance) for _ in range(3)]
    exact = loss_of(mean, contexts[-1]).detach()
    draws = torch.stack([loss_of(sampled, contexts[-1], seed=seed).detach() for seed in range(600)])
    error = draws.std() / len(draws) ** 0.5
    assert draws.std() > 0.01
    assert abs(draws.mean() - exact) < 5 * error


def test_mean_negatives_draw_nothing():
    """The generator is where it was."""
    world, guidance = keyed(), guided(negatives="mean")
    context = [world.begin(guidance) for _ in range(2)][-1]
    output = StepOutput(loss=torch.zeros(()), features=features_of())
    before = torch.get_rng_state()
    guidance.extra_loss(batch_of(context), output, context)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("seed", range(20))
def test_negatives_are_of_earlier_tasks_and_of_old_classes(seed):
    """A draw reproduces one of the losses that earlier tasks and old classes can give, and no other."""
    guidance, world = guided(task_weight=0.0), World()
    context = [world.begin(guidance) for _ in range(3)][-1]
    features = torch.eye(DIM)[:1].requires_grad_(True)
    labels = torch.tensor([5])
    torch.manual_seed(seed)
    batch = Batch(labels=labels, samples=labels, images=None, query=None)
    value = guidance.extra_loss(batch, StepOutput(loss=torch.zeros(()), features=features), context)
    possible = 1 - cosine(features, CLASSES[5]) + cosine(features, CLASSES[:4])
    assert float((possible - value).detach().abs().min()) < 1e-6
    world, guidance = keyed(), guided(class_weight=0.0)
    context = [world.begin(guidance) for _ in range(3)][-1]
    torch.manual_seed(seed)
    batch = Batch(labels=labels, samples=labels, images=None, query=None)
    value = guidance.extra_loss(batch, StepOutput(loss=torch.zeros(()), features=features), context)
    key = world.retrieval.key[2].detach()
    possible = 1 - cosine(key, TASKS[2]) + cosine(key, TASKS[:2])
    assert float((possible - value.detach()).abs().min()) < 1e-6


def test_gradients_reach_selected_keys_and_features_only():
    """The task loss moves the task's key, the class loss the features; texts want no gradient."""
    world, guidance = keyed(), guided()
    context = [world.begin(guidance) for _ in range(2)][-1]
    features = features_of()
    world.retrieval.requires_grad_(True)
    loss_of(guidance, context, features).backward()
    assert [key.grad is not None for key in world.retrieval.key] == [False, True, False, False]
    assert features.grad.abs().sum() > 0
    assert not any(table.requires_grad for table in guidance.state_dict().values())
    assert not isinstance(guidance, torch.nn.Module)


@pytest.mark.parametrize(
    ("weight", "other"), [("task_weight", "class_weight"), ("class_weight", "task_weight")]
)
def test_weights_scale_their_own_loss(weight, other):
    """The sum is linear in both weights."""

    def value(**weights):
        world, guidance = keyed(), guided(negatives="mean", **weights)
        return loss_of(guidance, [world.begin(guidance) for _ in range(2)][-1]).detach()

    alone = value(**{weight: 1.0, other: 0.0})
    torch.testing.assert_close(value(**{weight: 3.0, other: 0.0}), 3 * alone)
    torch.testing.assert_close(
        value(**{weight: 3.0, other: 2.0}), 3 * alone + 2 * value(**{weight: 0.0, other: 1.0})
    )


# -- shared sets, hosts without keys ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "set_text", "others", "together"),
    [
        ("per-task", "current", [0, 1, 2], [3]),
        ("per-set", "current", [1], [3]),
        ("per-set", "union", [1], [0, 2, 3]),
        ("per-task", "union", [0, 1, 2], [3]),
    ],
)
def test_a_shared_key_is_not_pushed_from_its_own_tasks(keys, set_text, others, together):
    """Set 0 has tasks 1, 3 and 4: its one key is pushed from task 2 alone; keys per task from all three."""
    world, guidance = keyed(keys=keys), guided(class_weight=0.0, negatives="mean", set_text=set_text)
    for reuse in (None, None, 0):
        world.begin(guidance, reuse=reuse)
    context = world.begin(guidance, reuse=0)
    key = world.retrieval.keys(context)[0].detach()
    expected = 1 - cosine(key, TASKS[together].mean(dim=0)) + cosine(key, TASKS[others]).mean()
    torch.testing.assert_close(loss_of(guidance, context).detach(), expected)


def test_with_one_shared_key_there_is_no_negative_left():
    """All tasks in one set, one key: only the pull is left, and nothing is drawn."""
    world, guidance = keyed(keys="per-set"), guided(class_weight=0.0)
    world.begin(guidance)
    context = world.begin(guidance, reuse=0)
    key = world.retrieval.key[0].detach()
    torch.testing.assert_close(loss_of(guidance, context).detach(), 1 - cosine(key, TASKS[1]))
    after = torch.get_rng_state()
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), after)


def test_class_keys_are_guided_together():
    """A strategy with several keys has all of those that the task selects pulled, summed up."""
    torch.manual_seed(0)
    world, guidance = World(ClassKeys(ClassKeysConfig(), BUILD)), guided(class_weight=0.0)
    context = world.begin(guidance)
    expected = 1 - cosine(world.retrieval.key[:2].detach(), TASKS[0]).sum()
    torch.testing.assert_close(loss_of(guidance, context).detach(), expected)


@pytest.mark.parametrize("levels", ["task", "both"])
def test_a_host_without_keys_is_told_once(levels):
    """The task loss contributes nothing; one warning in the whole run says so."""
    guidance, world = built(levels=levels), World()
    contexts = [world.begin(guidance) for _ in range(3)]
    with pytest.warns(UserWarning, match="no learned prompt keys: the task loss is left out") as caught:
        added = [loss_of(guidance, context) for context in contexts]
    assert len(caught) == 1
    assert (added[-1] is None) == (levels == "task")


def test_keys_of_a_baseline_are_guided():
    """Those that each sample selects are pulled, the mean over samples, and pushed from all earlier tasks."""
    guidance, world = guided(class_weight=0.0, negatives="mean"), World()
    context = [world.begin(guidance) for _ in range(3)][-1]
    keys = torch.randn(6, 2, DIM, requires_grad=True)
    output = StepOutput(loss=torch.zeros(()), keys=keys)
    found = guidance.extra_loss(batch_of(context), output, context)
    pull = torch.stack([cosine(key, TASKS[2]).sum() for key in keys]).mean()
    push = torch.stack([cosine(key[:, None], TASKS[:2]).sum(dim=0).mean() for key in keys]).mean()
    torch.testing.assert_close(found, 1 - pull + push)
    found.backward()
    assert keys.grad.any()


def test_a_host_without_features_is_told_once():
    """The class loss is left out where a step returns no features."""
    guidance, world = guided(task_weight=0.0), World()
    context = [world.begin(guidance) for _ in range(2)][-1]
    output = StepOutput(loss=torch.zeros(()))
    with pytest.warns(UserWarning, match="gives no features"):
        assert guidance.extra_loss(batch_of(context), output, context) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert guidance.extra_loss(batch_of(context), output, context) is None


# -- tables -------------------------------------------------------------------------------------------------


def test_sentences_are_encoded_when_their_task_arrives():
    """Names of future classes are never looked at, and nothing is encoded twice."""
    encoder = Recorder()
    guidance, world = guided(encoder), keyed()
    world.begin(guidance)
    first = ["A photo of apple.", "A photo of aquarium fish.", "A photo of apple or aquarium fish."]
    assert encoder.asked == first
    world.begin(guidance)
    assert encoder.asked[3:] == ["A photo of baby.", "A photo of bear.", "A photo of baby or bear."]


def test_the_class_level_alone_encodes_no_task():
    """Nobody needs a sentence that is not used."""
    encoder = Recorder()
    guidance = guided(encoder, task_weight=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        World().begin(guidance)
    assert encoder.asked == ["A photo of apple.", "A photo of aquarium fish."]


@pytest.mark.parametrize("overflow", ["mean", "truncate", "error"])
def test_a_sentence_that_is_too_long(overflow):
    """It gives way to the mean of the classes' vectors, is encoded as far as it goes, or is an error."""
    guidance, world = guided(Recorder(limit=6), class_weight=0.0, overflow=overflow), keyed()
    if overflow == "error":
        with pytest.raises(ConfigError, match="sentence of task 1 with its 2 classes is too long"):
            world.begin(guidance)
        return
    text = CLASSES[:2].mean(dim=0) if overflow == "mean" else TASKS[0]
    context = world.begin(guidance)
    expected = 1 - cosine(world.retrieval.key[0].detach(), text)
    torch.testing.assert_close(loss_of(guidance, context).detach(), expected)


def test_a_task_can_be_the_mean_of_its_classes():
    """By name, no sentence of a task is asked for."""
    encoder = Recorder()
    guidance, world = guided(encoder, class_weight=0.0, task_text="mean"), keyed()
    context = world.begin(guidance)
    expected = 1 - cosine(world.retrieval.key[0].detach(), CLASSES[:2].mean(dim=0))
    torch.testing.assert_close(loss_of(guidance, context).detach(), expected)
    assert task_sentence(NAMES[:2]) not in encoder.asked


def test_names_can_be_translated():
    """What a benchmark calls a class need not be what is said of it; a missing word is an error."""
    encoder = Recorder()
    guidance = guided(encoder, task_weight=0.0, names={"apple": "red apple", "aquarium_fish": "fish"})
    world = World()
    world.begin(guidance)
    assert encoder.asked == ["A photo of red apple.", "A photo of fish."]
    with pytest.raises(DataError, match="no words for class 'baby'"):
        world.begin(guidance)


def test_resume_has_the_same_tables_without_asking_again():
    """Restored vectors are used as they were; only what comes later is encoded."""
    world, guidance = keyed(), guided()
    contexts = [world.begin(guidance) for _ in range(2)]
    other = Recorder(scale=-1.0)  # another encoder by now
    restored = guided(other)
    restored.load_state_dict(guidance.state_dict())
    rules = ConstraintContext(task=contexts[-1], memory=None, pretrained_space=None)
    restored.begin_task(rules)
    assert other.asked == []
    assert torch.equal(loss_of(restored, contexts[-1]), loss_of(guidance, contexts[-1]))
    world.begin(restored)
    assert len(other.asked) == 3
    assert {name: len(table) for name, table in restored.state_dict().items()} == {"classes": 6, "tasks": 3}


# -- width --------------------------------------------------------------------------------------------------


def test_vectors_of_another_width_need_to_be_aligned():
    """They are refused at once, or turned into the features' width by a map that keeps their cosines."""
    with pytest.raises(ConfigError, match="width 5 cannot be compared with features of width 8"):
        guided(Recorder(5))
    guidance = guided(Recorder(5), align="orthogonal", task_weight=0.0, class_loss_first_task=True)
    context = World().begin(guidance)
    texts = guidance._table("classes", torch.zeros(1, DIM))
    raw = functional.normalize(HashEncoder(5).encode([class_sentence(name) for name in NAMES[:2]]), dim=1)
    torch.testing.assert_close(texts @ texts.T, raw @ raw.T, atol=1e-6, rtol=0)
    wide = loss_of(guidance, context, features_of(dim=12))
    assert 0 <= float(wide.detach()) <= 2
    plain = guided(task_weight=0.0, class_loss_first_task=True)
    with pytest.raises(ConfigError, match="of width 12"):
        loss_of(plain, World().begin(plain), features_of(dim=12))


# -- as a component -----------------------------------------------------------------------------------------


def built(encoder="hash", **options):
    """Build the registered constraint."""
    component = next(item for item in lw2g_constraints() if item.name == "lgcl")
    return component.build(component.config(encoder=encoder, **options), BUILD)


@pytest.mark.parametrize(
    "options", [{"task_weight": 0.0, "class_weight": 0.0}, {"levels": "class", "class_weight": 0.0}]
)
def test_without_weights_it_does_nothing_and_needs_no_text(options):
    """No loss, no draw, no encoder, no warning."""
    guidance = built("precomputed", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        contexts = [World().begin(guidance) for _ in range(2)]
    assert loss_of(guidance, contexts[-1]) is None
    assert guidance.state_dict() == {}


def test_no_text_is_an_error_and_never_replaced():
    """Without a file the default encoder refuses at once."""
    with pytest.raises(ConfigError, match=r"constraints\.lgcl\.file: .*needs a file of text vectors"):
        built("precomputed")


def test_a_file_serves_a_task(tmp_path):
    """Vectors of names, another width, words from a table: all by options."""
    write_vectors(tmp_path / "v.safetensors", torch.eye(2, 5), ["apple", "fish"], encoder="x")
    (tmp_path / "names.json").write_text(json.dumps({"apple": "apple", "aquarium_fish": "fish"}))
    options = {"file": tmp_path / "v.safetensors", "names": tmp_path / "names.json"}
    guidance = built("precomputed", align="orthogonal", task_text="mean", class_weight=0.0, **options)
    world = keyed()
    context = world.begin(guidance)
    assert float(loss_of(guidance, context).detach()) > 0
    assert torch.equal(
        guidance.state_dict()["tasks"][0], functional.normalize(torch.eye(2, 5).mean(0), dim=0)
    )
    strict = built("precomputed", align="orthogonal", **options)
    with pytest.raises(DataError, match="task_text"):
        keyed().begin(strict)


def test_the_record_says_what_is_not_the_published_method():
    """Hashed texts, aligned widths and means for sentences are named; the default is not."""
    assert published_differences(LgclConfig(), "lgcl") == []
    found = published_differences(
        LgclConfig(encoder="hash", align="orthogonal", task_text="mean", levels="class"), "lgcl"
    )
    notes = {item["option"]: item["note"] for item in found}
    assert set(notes) == {"lgcl.encoder", "lgcl.align", "lgcl.task_text", "lgcl.levels"}
    assert "for tests only" in notes["lgcl.encoder"]


@pytest.mark.parametrize(
    "option",
    [
        {"encoder": "clip"},
        {"levels": "none"},
        {"task_weight": -1.0},
        {"overflow": "cut"},
        {"align": "learned"},
    ],
)
def test_bad_options_are_refused(option):
    """A value outside its range is refused when the config is made, naming the field."""
    with pytest.raises(ValueError, match=next(iter(option))):
        LgclConfig(**option)
