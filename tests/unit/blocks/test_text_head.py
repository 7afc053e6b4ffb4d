"""The head of class names in text: zero-shot, and mixed with a head in closed form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.ridge import Ridge
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.context import TaskInfo
from lw2g.pixels.text_vectors import read_text_vectors, write_vectors
from lw2g_heads.text_head import WEIGHTS, TextHead

DIM, CLASSES = 6, 4
NAMES = ("apple", "aquarium_fish", "road", "wolf")
OPTION = "baseline.head_text"


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Tensor, Tensor, Tensor]:
    """Return a file of text vectors, the vectors, and images about them with their labels."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(CLASSES, DIM, generator=generator)
    file = tmp_path / "text.safetensors"
    write_vectors(file, vectors, [name.replace("_", " ") for name in NAMES], "test")
    labels = torch.arange(CLASSES).repeat(15)
    features = 3 * vectors[labels] + 2 * torch.randn(60, DIM, generator=generator)
    return file, vectors, features, labels


def task(index: int, classes: range) -> TaskInfo:
    names = tuple(NAMES[one] for one in classes)
    return TaskInfo(
        index=index, classes=tuple(classes), class_names=names, seen=classes.stop, num_images=len(names)
    )


def taught(head: TextHead, features: Tensor, labels: Tensor, cuts: tuple[range, ...]) -> TextHead:
    for index, classes in enumerate(cuts):
        head.begin_task(task(index, classes))
        head.expect(task(index, classes))
        own = torch.isin(labels, torch.tensor(list(classes)))
        head.learn(features[own], labels[own], torch.Generator().manual_seed(index))
    return head


def test_text_alone_is_zero_shot(world):
    """Scores are the logit scale times cosines to class vectors, whatever images came in which tasks."""
    file, vectors, features, labels = world
    expected = 100 * torch.cosine_similarity(features[:, None].double(), vectors.double()[None], dim=2)
    for cuts in ((range(4),), (range(1), range(1, 4))):
        head = taught(TextHead(DIM, CLASSES, DIM, file, OPTION), features, labels, cuts)
        torch.testing.assert_close(head.scores(features, CLASSES), expected, rtol=1e-6, atol=1e-5)
    first = taught(TextHead(DIM, CLASSES, DIM, file, OPTION), features, labels, (range(2),))
    assert first.logits(features)[:, 2:].abs().sum() == 0


def test_sentences_of_a_class_are_averaged_as_directions(tmp_path):
    """Vectors get length 1, then their mean does; from safetensors and npz alike, by the class they name."""
    vectors = torch.tensor([[3.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    sentences = ["a photo of a wolf", "art of a wolf", "a road"]
    classes = ["wolf", "wolf", "road"]
    write_vectors(tmp_path / "a.safetensors", vectors, sentences, "test", classes)
    np.savez(tmp_path / "b.npz", vectors=vectors.numpy(), sentences=sentences, classes=classes)
    for name in ("a.safetensors", "b.npz"):
        read = read_text_vectors(tmp_path / name, OPTION)
        torch.testing.assert_close(read.of_class("wolf"), torch.tensor([0.5, 0.5]).sqrt())
        torch.testing.assert_close(read.of_class("road"), torch.tensor([0.5, 0.5]).sqrt())


def test_a_class_that_comes_again_has_one_text(world):
    """Two positions of one target score as the one class: its vectors are pooled to length 1."""
    file, vectors, features, labels = world
    head = TextHead(DIM, CLASSES + 1, DIM, file, OPTION)
    head = taught(head, features, labels, (range(4),))
    again = TaskInfo(index=1, classes=(4,), class_names=(NAMES[2],), seen=5, num_images=15, targets=(2,))
    head.begin_task(again)
    head.expect(again)
    head.learn(features[labels == 2], torch.full((15,), 4), torch.Generator())
    cosines = 100 * torch.cosine_similarity(features[:, None].double(), vectors.double()[None], dim=2)
    expected = cosines[:, [0, 1, 2, 3, 2]]
    torch.testing.assert_close(head.scores(features, 5), expected, rtol=1e-6, atol=1e-5)


def test_a_class_whose_text_is_in_the_state_needs_no_file(tmp_path):
    """A model that goes on learning known classes does not look for the file, whatever entries are zero."""
    file = tmp_path / "text.safetensors"
    vectors = torch.eye(CLASSES, DIM)
    write_vectors(file, vectors, [name.replace("_", " ") for name in NAMES], "test")
    labels = torch.arange(CLASSES)
    head = taught(TextHead(DIM, CLASSES, DIM, file, OPTION), vectors, labels, (range(4),))
    file.unlink()
    exported = TextHead(DIM, CLASSES, DIM, None, OPTION)
    exported.load_state_dict(head.state_dict())
    exported.expect(task(0, range(4)))
    exported.learn(vectors, labels, torch.Generator())
    assert exported.count.tolist() == [2] * CLASSES
    assert torch.equal(exported.text, vectors.double())


def test_a_projection_and_a_scale_come_from_the_file(world, tmp_path):
    """Features of another width pass through the model's projection; the state holds all that was read."""
    _, vectors, features, labels = world
    projection = torch.randn(9, DIM, generator=torch.Generator().manual_seed(1))
    wide = features @ torch.linalg.pinv(projection)
    file = tmp_path / "projected.safetensors"
    note = {"sentences": json.dumps([name.replace("_", " ") for name in NAMES]), "logit_scale": "20"}
    save_file({"vectors": vectors, "projection": projection}, file, metadata=note)
    head = taught(
        TextHead(9, CLASSES, DIM, file, OPTION, Discriminant(DIM, CLASSES)), wide, labels, (range(4),)
    )
    assert float(head.scale) == 20
    alone = taught(TextHead(9, CLASSES, DIM, file, OPTION), wide, labels, (range(4),))
    expected = 20 * torch.cosine_similarity(features[:, None], vectors[None], dim=2)
    torch.testing.assert_close(alone.scores(wide, CLASSES).float(), expected, rtol=1e-3, atol=1e-3)
    file.unlink()
    second = TextHead(9, CLASSES, DIM, file, OPTION, Discriminant(DIM, CLASSES))
    second.begin_task(task(0, range(4)))
    second.load_state_dict(head.state_dict())
    assert torch.equal(second.scores(wide, CLASSES), head.scores(wide, CLASSES))


def test_a_mix_adds_weighted_scores_of_a_head_on_projected_features(world):
    """At weight 0 it is zero-shot; at another one, cosines plus that much of the head on unit features."""
    file, _, features, labels = world
    alone = taught(TextHead(DIM, CLASSES, DIM, file, OPTION), features, labels, (range(4),))
    other = Discriminant(DIM, CLASSES)
    other.update(functional.normalize(features.double(), dim=1), labels)
    beside = other.scores(functional.normalize(features.double(), dim=1), CLASSES)
    for weight in (0.0, 0.3):
        mix = TextHead(DIM, CLASSES, DIM, file, OPTION, Discriminant(DIM, CLASSES), weight)
        found = taught(mix, features, labels, (range(2), range(2, 4))).scores(features, CLASSES)
        torch.testing.assert_close(found, alone.scores(features, CLASSES) + weight * beside)


def test_a_fitted_weight_is_that_of_least_loss_on_images_held_back(world):
    """Every fifth image of a class, scored by a head of the others; afterwards the head has seen all."""
    file, vectors, features, labels = world
    mix = taught(
        TextHead(DIM, CLASSES, DIM, file, OPTION, Discriminant(DIM, CLASSES)), features, labels, (range(4),)
    )
    held = torch.zeros(60, dtype=torch.bool)
    for label in range(CLASSES):
        held[(labels == label).nonzero()[4::5, 0]] = True
    rows = functional.normalize(features.double(), dim=1)
    part = Discriminant(DIM, CLASSES)
    part.update(rows[~held], labels[~held])
    cosines = 100 * rows[held] @ functional.normalize(vectors.double(), dim=1).T
    beside = part.scores(rows[held], CLASSES)
    losses = [
        float(functional.cross_entropy(cosines + weight * beside, labels[held], reduction="sum"))
        for weight in WEIGHTS
    ]
    assert mix.losses.tolist() == pytest.approx(losses, rel=1e-4)
    assert mix.fitted_weight == WEIGHTS[int(np.argmin(losses))]
    assert mix.head.count.tolist() == [15] * 4


def test_useless_text_leaves_the_decision_to_images(world, tmp_path):
    """Class vectors of other classes: the fitted weight is large, and images decide."""
    _, vectors, features, labels = world
    file = tmp_path / "wrong.safetensors"
    write_vectors(file, vectors.roll(1, 0), [name.replace("_", " ") for name in NAMES], "test")
    ridge = Ridge(DIM, CLASSES, 0, 0, choice="gcv")
    mix = taught(TextHead(DIM, CLASSES, DIM, file, OPTION, ridge), features, labels, (range(4),))
    assert mix.fitted_weight > 10
    alone = taught(TextHead(DIM, CLASSES, DIM, file, OPTION), features, labels, (range(4),))
    right = [
        float((head.scores(features, CLASSES).argmax(1) == labels).double().mean()) for head in (alone, mix)
    ]
    assert right[0] < 0.3
    assert right[1] > 0.75


def test_lda_at_the_published_share_ranks_as_gaussian_discriminant_analysis():
    """GDA's P = d ((n - 1) S + tr(S) I)^-1 is the inverse of a covariance shrunk by d / (n - 1 + d)."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(CLASSES).repeat(10)
    features = torch.randn(40, DIM, generator=generator, dtype=torch.float64) + labels[:, None]
    share = DIM / (len(labels) - 1 + DIM)
    lda = Discriminant(DIM, CLASSES, share)
    lda.update(features, labels)
    covariance = lda.scatter.sum(0) / (len(labels) - CLASSES)
    inverse = torch.linalg.inv(
        ((len(labels) - 1) * covariance + covariance.trace() * torch.eye(DIM, dtype=torch.float64)) / DIM
    )
    scores = features @ inverse @ lda.mean.T - 0.5 * ((lda.mean @ inverse) * lda.mean).sum(1)
    factor = DIM / (len(labels) - 1 + DIM)
    torch.testing.assert_close(scores, factor * lda.scores(features, CLASSES))


def test_files_that_do_not_fit_are_refused_in_one_line(world, tmp_path):
    """No file, another width, a turned projection, a class without a vector, zeros: each names the option."""
    vectors = world[1]
    with pytest.raises(ConfigError, match=r"baseline.head_text: the head 'text' has no file"):
        TextHead(DIM, CLASSES, DIM, None, OPTION).expect(task(0, range(2)))
    with pytest.raises(ConfigError, match=r"baseline.head_text: no file '.*gone.npz'"):
        TextHead(DIM, CLASSES, DIM, tmp_path / "gone.npz", OPTION).expect(task(0, range(2)))
    file = tmp_path / "some.safetensors"
    write_vectors(file, vectors[:2], ["apple", "aquarium fish"], "test")
    with pytest.raises(ConfigError, match=r"does not map features of width 7 to text of width 6; .*\[7, 6\]"):
        TextHead(7, CLASSES, DIM, file, OPTION).expect(task(0, range(2)))
    with pytest.raises(ConfigError, match=r"text vectors of width 6, not 5; set head.text.width=6"):
        TextHead(DIM, CLASSES, 5, file, OPTION).expect(task(0, range(2)))
    head = TextHead(DIM, CLASSES, DIM, file, OPTION)
    head.begin_task(task(0, range(4)))
    with pytest.raises(DataError, match=r"no vector for class 'road'"):
        head.expect(task(0, range(4)))
    note = {"sentences": json.dumps(["apple", "aquarium fish"])}
    save_file({"vectors": vectors[:2], "projection": torch.ones(DIM, 9)}, file, metadata=note)
    with pytest.raises(DataError, match=r"projection of shape \(6, 9\) .*\[d, 6\]; transpose it"):
        read_text_vectors(file, OPTION)
    save_file({"vectors": 0 * vectors[:2]}, file, metadata=note)
    with pytest.raises(DataError, match="zero or not finite"):
        read_text_vectors(file, OPTION)
    wide = torch.full((DIM, DIM), 1e300, dtype=torch.float64)
    save_file({"vectors": vectors[:2], "projection": wide}, file, metadata=note)
    with pytest.raises(DataError, match="a projection that is not finite, or too large for float32"):
        read_text_vectors(file, OPTION)
    save_file({"vectors": vectors[:2]}, file, metadata={"sentences": json.dumps({"apple": 0})})
    with pytest.raises(DataError, match="expected a list of strings in sentences but got"):
        read_text_vectors(file, OPTION)
    save_file({"vectors": vectors[:2]}, file, metadata={**note, "classes": json.dumps(["apple"])})
    with pytest.raises(DataError, match="names 1 class for 2 rows"):
        read_text_vectors(file, OPTION)
