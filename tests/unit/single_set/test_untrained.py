"""What trains nothing reads each image as it is, whatever a benchmark does to images of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import Catalogue
from runs import different, shortest, tensors


@pytest.mark.parametrize(
    ("baseline", "options", "alike"),
    [
        ("simple-cil", {"baseline.head": "lda"}, True),
        ("simple-cil", {"baseline.head": "ridge"}, True),
        ("simple-cil", {"baseline.head": "auto"}, True),
        ("ranpac", {"baseline.adapt": "none"}, True),
        ("finetune", {}, False),  # trains, and sees the crops
    ],
)
def test_what_trains_nothing_never_augments(
    baseline: str, options: dict[str, Any], alike: bool, catalogue: Catalogue, tmp_path: Path
) -> None:
    """Under a random training transform it ends with the same bits as without; a trained method does not."""
    for crops in (False, True):
        resolved = shortest(catalogue, baseline, options | {"benchmark.random_crops": crops})
        start(resolved, catalogue, tmp_path / str(crops))
    apart = different(tensors(tmp_path / "False"), tensors(tmp_path / "True"))
    assert (not apart) is alike, apart
