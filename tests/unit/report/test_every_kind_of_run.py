"""Every form of report, for every kind of run: none of them stops at what a run is made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.config.resolve import resolve
from lw2g.inputs.text_vectors import write_vectors
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import load_catalogue
from lw2g.reports.page import page
from vectors import CLASSES, DIM, vector_file

OF_FEATURES: dict[str, dict[str, Any]] = {
    "stored features": {"benchmark.increment": 2},
    "domains": {"benchmark.stream": "domains"},
    "versatile": {"benchmark.stream": "versatile", "benchmark.increment": 3},
    "repetition": {"benchmark.stream": "repetition", "benchmark.tasks": 3, "benchmark.increment": 3},
    "sparse evaluation": {"benchmark.increment": 2, "run.evaluate": "last"},
    "text": {"benchmark.increment": 2, "baseline.head": "text"},
}
OF_IMAGES: dict[str, dict[str, Any]] = {
    "images": {"baseline": "simple-cil"},
    "expert": {"baseline": "hide-prompt", "baseline.epochs": 1, "routing.expert": "frozen"},
}
FORMS = (
    *(["report", "RUN", "--format", form] for form in ("md", "latex", "csv", "json")),
    ["report", "RUN", "--columns", "all"],
    ["report", "RUN", "--html", "PAGE"],
    *(["show", "RUN", *more] for more in ([], ["--all"], ["--all", "--explain"], ["--json"])),
    ["runs", "RUN"],
    ["verify", "RUN"],
)


def features_run(kind: str, folder: Path) -> Path:
    """Learn a file of features that overlap, so that some are taken for another class."""
    draw = np.random.default_rng(3)
    noise = {f"{split}_x": draw.normal(size=(n * CLASSES, DIM)) for split, n in (("train", 12), ("test", 4))}
    file = vector_file(folder / "f.npz", **{name: rows.astype(np.float32) for name, rows in noise.items()})
    options = {"benchmark.file": str(file), "run.device": "cpu", **OF_FEATURES[kind]}
    if kind == "text":
        names = [f"class {label}" for label in range(CLASSES)]
        write_vectors(folder / "text.safetensors", torch.eye(CLASSES, DIM), names, "test")
        options |= {"head.text.file": str(folder / "text.safetensors"), "head.text.width": DIM}
    catalogue = load_catalogue()
    resolved = resolve(catalogue, overrides=options, baseline="simple-cil", benchmark="features")
    start(resolved, catalogue, folder / "run")
    return folder / "run"


def image_run(kind: str, folder: Path) -> Path:
    """Learn drawn digits on the embedded backbone."""
    options = {"run.device": "cpu", **OF_IMAGES[kind]}
    catalogue = load_catalogue()
    baseline = options.pop("baseline")
    start(
        resolve(catalogue, overrides=options, baseline=baseline, benchmark="digits"),
        catalogue,
        folder / "run",
    )
    return folder / "run"


def require_every_form(run: Path, page_of_run: Path) -> str:
    """Ask for every form of report, and return the page."""
    for words in FORMS:
        places = {"RUN": str(run), "PAGE": str(page_of_run)}
        told = CliRunner().invoke(main, [places.get(word, word) for word in words])
        assert (told.exit_code, told.exception) == (0, None), (words, told.output)
        assert told.output.strip(), words
    return page_of_run.read_text(encoding="utf-8")


QUICK = ("stored features",)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in OF_FEATURES]
)
def test_a_run_on_stored_features_is_reported_in_every_form(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With wrong answers in it, of which a page says that there are no pictures."""
    monkeypatch.setattr(page, "_script", lambda: "")  # the drawing library takes seconds to put together
    text = require_every_form(features_run(kind, tmp_path), tmp_path / "page.html")
    assert "No gallery of mistakes: the run is of stored features, of which there are no pictures." in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_IMAGES)
def test_a_run_on_images_is_reported_in_every_form(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With wrong answers in it, whose pictures are in the page."""
    monkeypatch.setattr(page, "_script", lambda: "")
    text = require_every_form(image_run(kind, tmp_path), tmp_path / "page.html")
    assert "No gallery of mistakes" not in text
    assert len(re.findall(r'src="data:image/webp', text)) > 3
