"""The temperature of a head beside a frozen expert: fitted to true targets and to the head's own answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch

from lw2g.blocks.expert import FrozenExpert
from lw2g.interfaces.calibration import Temperature
from lw2g.learning.routing import learn_temperature
from lw2g.model.predictor import Predictor

# of three tasks the last brings the classes of the first again: positions 4 and 5 are targets 1 and 0
TARGETS = torch.tensor([0, 1, 2, 3, 1, 0])
LABELS = torch.tensor([4, 5, 5, 4, 5])
LOGITS = torch.tensor([[0.0, 3, 1, 0], [4, 0, 1, 0], [2, 1, 0, 0], [0, 1, 2, 0], [3, 0, 0, 1]])


@attrs.frozen(eq=False)
class _Predictor:
    """Answers with what is written above, image by image."""

    expert: Any
    targets: torch.Tensor = TARGETS
    retrieval: Any = None
    device: Any = None

    def __call__(self, batch: Any, names: list[str], *, tasks: bool) -> Any:
        assert self.expert is None, "the expert's answer is in the head's"
        assert names == [f"image {place}" for place in batch.places]
        return SimpleNamespace(logits=LOGITS[batch.places])


class _Batch:
    def __init__(self, places: list[int]) -> None:
        self.places = places
        self.labels = LABELS[places]

    def __len__(self) -> int:
        return len(self.places)


class _Images:
    ids = tuple(f"image {place}" for place in range(len(LABELS)))

    def __len__(self) -> int:
        return len(LABELS)

    def batches(self, places: Any) -> Any:
        return (_Batch(list(own)) for own in places)


@pytest.mark.parametrize("batch", [2, 5])
def test_a_class_that_comes_again_has_its_first_target(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of a later task are held against the columns of their targets, whatever their positions are."""
    expert = FrozenExpert(3, 4, fitted=True)
    monkeypatch.setattr(Predictor, "of", lambda parts, index: _Predictor(expert))
    parts: Any = SimpleNamespace(
        baseline=SimpleNamespace(frozen_expert=expert),
        config=SimpleNamespace(run=SimpleNamespace(evaluation_batch=batch)),
    )
    context: Any = SimpleNamespace(task=SimpleNamespace(index=2))
    learn_temperature(parts, context, _Images())  # type: ignore[arg-type]
    expected = Temperature(1.0)
    expected.observe(LOGITS, torch.tensor([1, 0, 0, 1, 0]))
    assert expert.temperature is not None
    torch.testing.assert_close(expert.temperature.loss, expected.loss)
    assert expert.warmth == expected.value != 1.0
