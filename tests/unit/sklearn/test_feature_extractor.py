"""FeatureExtractor: images in any form become the features that lw2g's own models are made of."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import lw2g
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.sklearn import ContinualClassifier, FeatureExtractor


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of two classes with three images each."""
    root = tmp_path_factory.mktemp("drawings")
    draw = np.random.default_rng(0)
    for place, name in enumerate(("red", "green")):
        (root / name).mkdir()
        for number in range(3):
            pixels = draw.integers(0, 120, (32, 32, 3), dtype=np.uint8)
            pixels[..., place] += 100
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


def micro(**options: object) -> FeatureExtractor:
    return FeatureExtractor("micro", device="cpu", **options)


def test_features_are_those_of_a_model_that_starts_from_the_images(drawings, tmp_path):
    """What `lw2g start` learns from and what the extractor returns are the same numbers."""
    model, _ = lw2g.start(drawings, tmp_path / "model", backbone="micro", device="cpu")
    files = sorted(map(str, drawings.rglob("*.png")))
    np.testing.assert_allclose(micro().transform(files), model.features(files).numpy(), atol=1e-6)


def test_an_image_is_taken_in_any_form(drawings):
    """Paths, PIL images, arrays one by one and as one, tensors, a column of objects: the same features."""
    files = sorted(drawings.rglob("*.png"))
    arrays = [np.asarray(Image.open(file)) for file in files]
    expected = micro().fit_transform(files)
    assert expected.shape == (6, 128)
    assert expected.dtype == np.float32
    forms = [
        list(map(str, files)),
        np.array([[str(file)] for file in files], dtype=object),
        [Image.open(file) for file in files],
        arrays,
        np.stack(arrays),
        np.stack(arrays) / 255,
        torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2),
        tuple(arrays),
    ]
    for form in forms:
        np.testing.assert_allclose(micro(batch_size=4).transform(form), expected, atol=1e-5)


def test_options_are_those_of_the_backbone(drawings):
    """Layers and pooling give the widths that they say, and name the columns."""
    files = sorted(drawings.rglob("*.png"))[:2]
    two = micro(layers=2)
    assert two.transform(files).shape == (2, 512)
    assert micro(pool="avg").transform(files).shape == (2, 128)
    assert two.get_feature_names_out()[[0, -1]].tolist() == ["featureextractor0", "featureextractor511"]


def test_a_pipeline_learns_from_images(drawings):
    """Fit, grid search, clone, pickle, and a class that comes later."""
    digits = load_digits()
    images, numbers = digits.images / 16, digits.target
    known = numbers < 3
    pipeline = make_pipeline(micro(), ContinualClassifier())
    grid = {"continualclassifier__head": ["lda", "cosine"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(images[known][:60], numbers[known][:60])
    assert search.best_score_ > 0.9
    again = clone(search.best_estimator_).fit(images[known][:60], numbers[known][:60])
    best = pickle.loads(pickle.dumps(again))
    later = images[numbers == 3][:20]
    best[-1].partial_fit(best[:-1].transform(later), [3] * len(later))
    assert best.classes_.tolist() == [0, 1, 2, 3]
    assert best.score(images[numbers < 4][100:160], numbers[numbers < 4][100:160]) > 0.8


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ([], "no image was given"),
        (__file__, r"test_feature_extractor.py' is one image.*give \[IMAGE\]"),
        (".", r"'\.' is a folder; name the images in it one by one"),
        ("photo.jpg", r"no image file at 'photo\.jpg'; give a list of images"),
        (["no.png", "none.png"], "2 images cannot be used"),
        (np.zeros((4, 64)), r"an array of shape \[4, 64\] is no batch of images"),
        (np.full((1, 8, 8), 3.0), "no known range; give uint8 .*, or floats from 0 to 1"),
        ([3], "an object of type int is no image"),
        (["."], r"'\.' is a folder; name the images in it one by one"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_image_is_refused_in_one_line(images, said):
    """The message says what to give."""
    with pytest.raises(DataError, match=said):
        micro().transform(images)


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"backbone": "micr"}, Lw2gError, "did you mean 'micro'"),
        ({"backbone": "micro", "batch_size": 0}, ConfigError, "batch_size: 0 is below 1; give 1 or more"),
        ({"backbone": "micro", "pool": "cls"}, ConfigError, r"backbone\.pool: expected one of .*'token'"),
    ],
    ids=["backbone", "batch_size", "pool"],
)
def test_options_that_cannot_be_used_are_refused(options, kind, said):
    """Before any image is read."""
    with pytest.raises(kind, match=said):
        FeatureExtractor(**options).fit(None)


def test_nothing_is_imported_before_use():
    """``lw2g.sklearn`` imports neither torch nor scikit-learn until a name is asked for."""
    code = "import sys, lw2g.sklearn; print({'torch', 'sklearn', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_another_name_is_refused_as_of_any_module():
    """A misspelt name is an ``ImportError``."""
    with pytest.raises(ImportError, match="Classifier"):
        exec("from lw2g.sklearn import Classifier")
