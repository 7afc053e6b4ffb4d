"""Trial training: is a task better off with a set of its own? Tried on copies; the expensive reference.

``gain = loss(grow) - loss(reuse m)`` in nats on training images held out, after k steps under the same
protection, batches and head. A positive gain means that reuse is better. Few steps favour sets that start
trained; a new set that starts from a trained one does too. It says nothing about retrieval and forgetting.
With its sign and as a ratio it is TAG's affinity (Fifty et al., NeurIPS 2021) of a task with itself under
two starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from lw2g.plugin import Measure, Measurement, Sample
from lw2g_growth.options import TrialConfig

__all__ = ["Trial"]


class Trial(Measure):
    """The held-out loss that reuse saves over growth after some steps."""

    needs = frozenset(("trial",))
    config: TrialConfig

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the gain of every candidate."""
        config = self.config
        grown = self._losses(sample, number=None)
        by_set = {}
        for candidate in sample.candidates:
            reused = self._losses(sample, candidate.set)
            gains = grown - reused  # [draws, images], paired
            each = gains.mean(dim=0)
            by_draw = gains.mean(dim=1)
            # two sources of error: which images are held out, and how the head begins
            variance = 0.0
            if len(each) > 1:
                variance += float(each.var()) / len(each)
            if len(by_draw) > 1:
                variance += float(by_draw.var()) / len(by_draw)
            by_set[candidate.set] = Measurement(
                value=float(gains.mean()),
                error=math.sqrt(variance),
                null=0.0,
                n=gains.shape[1],
                unit="nats",
                parts={
                    "grow": float(grown.mean()),
                    "reuse": float(reused.mean()),
                    "steps": float(config.steps),
                },
            )
        return by_set

    def _losses(self, sample: Sample, number: int | None) -> Tensor:
        """Return the losses on held-out images after some steps, ``[draws, images]`` float64.

        Args:
            sample: The sample.
            number: The set that is trained; None for a new one.
        """
        losses = []
        for draw in range(self.config.draws):
            # a draw has one head for all sets, so that their losses are paired
            losses.append(sample.trial(number, self.config.steps, draw))
        return torch.stack(losses).double()
