"""Learning on features of several layers: exact over steps and orders, and taken back to the bit."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import lw2g
from lw2g.model import exported

NAMES = ("ant", "bee", "cat")
WIDTHS = {2: 2 * 2 * 128, "all": 7 * 2 * 128}
"""Of the micro ViT: six blocks and the final norm, of each the class token and the mean of the patches."""
few_or_all = pytest.mark.parametrize("layers", [2, pytest.param("all", marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Coloured noise in three classes of eight images, each also alone in a folder of its name."""
    root = tmp_path_factory.mktemp("drawn")
    draws = np.random.default_rng(3)
    for number, name in enumerate(NAMES):
        for place in range(8):
            pixels = draws.integers(0, 120, (32, 32, 3)) + 60 * number
            for folder in (root / "all" / name, root / name / name):
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{place}.png")
    for one, other in itertools.combinations(NAMES, 2):
        for name in (one, other):
            (root / f"{one}-{other}").mkdir(exist_ok=True)
            (root / f"{one}-{other}" / name).symlink_to(root / name / name)
    return root


def first(folder: Path, out: Path, head: str, layers: int | str) -> Path:
    """Make a first model; on a CPU, so that bits are comparable."""
    lw2g.start(folder, out, head=head, device="cpu", settings={"backbone.layers": layers})
    return out


@pytest.mark.parametrize(
    ("head", "layers"),
    [
        ("lda", 2),
        *(pytest.param(head, 2, marks=pytest.mark.slow) for head in ("mahalanobis", "cosine")),
        pytest.param("lda", "all", marks=pytest.mark.slow),
    ],
)
def test_sums_of_several_layers_do_not_depend_on_the_cut_or_the_order(
    head: str, layers: int | str, drawn: Path, tmp_path: Path
) -> None:
    """All classes at once, and two orders of a first model that learns the third, score alike to 1e-8."""
    images = sorted((drawn / "all").rglob("*.png"))
    scored = {}
    paths = {
        "whole": ("all", ()),
        "onward": ("ant-bee", ("cat",)),
        "other": ("bee-cat", ("ant",)),
    }
    for way, (begun, steps) in paths.items():
        model = first(drawn / begun, tmp_path / way, head, layers)
        for step in steps:
            lw2g.learn(model, drawn / step, out=tmp_path / f"{way}-{step}", device="cpu")
            model = tmp_path / f"{way}-{step}"
        loaded = lw2g.load(model, device="cpu")
        rows = loaded.features(images).double()
        assert rows.shape == (24, WIDTHS[layers])
        scores = loaded.baseline.closed_form.scores(rows, 3)
        # positions are those of arrival
        scored[way] = scores[:, [loaded.classes.index(name) for name in NAMES]]
    for way in ("onward", "other"):
        torch.testing.assert_close(scored[way], scored["whole"], rtol=1e-8, atol=1e-8)


@few_or_all
def test_a_step_on_several_layers_is_taken_back_to_the_bit(
    layers: int | str, drawn: Path, tmp_path: Path
) -> None:
    """`learn` then `unlearn` gives the model of before, every tensor with its bits."""
    begun = first(drawn / "ant-bee", tmp_path / "begun", "lda", layers)
    lw2g.learn(begun, drawn / "cat", out=tmp_path / "more", device="cpu")
    lw2g.unlearn(tmp_path / "more", last=True, out=tmp_path / "back", device="cpu")
    before, after = (exported.read_export(tmp_path / name).tensors for name in ("begun", "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert max(value.shape[-1] for value in before.values() if value.ndim) >= WIDTHS[layers]
