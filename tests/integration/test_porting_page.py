"""docs/howto/porting.md: the ported head is the published formula, and keeps the promises of a head."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lw2g.interfaces.head import HeadContext
from lw2g_testing import contract_cases, tiny_catalogue

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "porting.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module that registers the page's head, made of the page's code."""
    root = tmp_path_factory.mktemp("page")
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.S | re.M):
        path, _, text = code.partition("\n")
        file = root / path.removeprefix("# ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (root / "slda_release" / "__init__.py").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root)
        yield importlib.import_module("slda_release.plugin")
    for name in [name for name in sys.modules if name.startswith("slda_release")]:
        del sys.modules[name]


def published(x: Any, y: Any, queries: Any, eps: float = 1e-4) -> Any:
    """Return the release's scores: the covariance itself is kept, image after image."""
    classes, dim = y.max() + 1, x.shape[1]
    means, seen, covariance = np.zeros((classes, dim)), np.zeros(classes), np.zeros((dim, dim))
    for n, (row, label) in enumerate(zip(x, y, strict=True)):
        away = (row - means[label])[:, None]
        covariance = (n * covariance + n / (n + 1) * (away @ away.T)) / (n + 1)
        means[label] = (seen[label] * means[label] + row) / (seen[label] + 1)
        seen[label] += 1
    inverse = np.linalg.pinv((1 - eps) * covariance + eps * np.eye(dim))
    return np.array([[m @ inverse @ q - m @ inverse @ m / 2 for m in means] for q in queries])


@pytest.mark.parametrize("parts", [1, 3])
def test_the_ported_head_has_the_published_scores(plugin: Any, parts: int) -> None:
    """On one batch, whole or in parts of the same order, scores are those of the formula in numpy."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(4), 10))
    x = rng.normal(size=(40, 6)) + rng.normal(size=(4, 6))[y]
    queries = rng.normal(size=(5, 6))
    context = HeadContext(dim=6, num_classes=4, seed=0)
    head = plugin.COMPONENT.build(plugin.SldaReleaseConfig(), context)
    for rows, labels in zip(np.array_split(x, parts), np.array_split(y, parts), strict=True):
        head.update(torch.from_numpy(rows), torch.from_numpy(labels))
    scores = head.scores(torch.from_numpy(queries), 4)
    np.testing.assert_allclose(scores.numpy(), published(x, y, queries), rtol=1e-8, atol=1e-8)


def test_the_ported_head_keeps_the_contract(plugin: Any) -> None:
    """Every check of a head passes, or says nothing about it; its record is found."""
    component = tiny_catalogue(plugin).get("head", "slda-release")
    results = [case.result() for case in contract_cases(component)]
    assert "passed" in {one.status for one in results}
    assert [f"{one.check}: {one.message}" for one in results if one.status == "failed"] == []
