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

from lw2g.interfaces.evidence import Measure, Sample
from lw2g.interfaces.growth import Measurement
from lw2g_growth.options import TrialConfig

__all__ = ["Trial"]


class Trial(Measure):
    """The held-out loss that reuse saves over growth after some steps."""

    needs = frozenset(("trial",))
    config: TrialConfig

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the gain of every candidate."""
        config, draws = self.config, range(self.config.draws)
        grown = torch.stack([sample.trial(None, config.steps, draw) for draw in draws]).double()
        by_set = {}
        for candidate in sample.candidates:
            reused = torch.stack([sample.trial(candidate.set, config.steps, draw) for draw in draws]).double()
            gains = grown - reused  # [draws, images], paired
            each, by_draw = gains.mean(dim=0), gains.mean(dim=1)
            variance = float(each.var()) / len(each) if len(each) > 1 else 0.0
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
