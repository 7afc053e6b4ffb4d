"""Language guidance: its tables, its options, and what a record says of it."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from torch.nn import functional

from guidance import (
    CLASSES,
    DIM,
    NAMES,
    TASKS,
    Recorder,
    World,
    built,
    cosine,
    features_of,
    guided,
    keyed,
    loss_of,
)
from lw2g.errors import ConfigError, DataError
from lw2g.pixels.text_vectors import class_sentence, task_sentence, write_vectors
from lw2g_constraints.options import LgclConfig
from lw2g_constraints.text import HashEncoder

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


def test_names_can_be_translated(tmp_path):
    """What a benchmark calls a class need not be what is said of it; a missing word is an error."""
    encoder, names = Recorder(), tmp_path / "names.json"
    names.write_text('{"apple": "red apple", "aquarium_fish": "fish"}')
    guidance = guided(encoder, task_weight=0.0, names=names)
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
    restored.begin_task(contexts[-1])
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


def test_bad_options_are_refused():
    """A value outside its range is refused when the config is made, naming the field."""
    with pytest.raises(ValueError, match="task_weight"):
        LgclConfig(task_weight=-1.0)
