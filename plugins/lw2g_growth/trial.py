"""Trial training: is a task better off with a set of its own? Tried on copies, the dear reference.

``gain = loss(grow) - loss(reuse m)`` in nats on training images held out, after k steps under the same
protection, batches and head. A positive gain means that reuse is better. Few steps favour sets that start
trained; a new set that starts from a trained one does too. It says nothing of retrieval and of what old
tasks forget. With its sign and as a ratio it is TAG's affinity (Fifty et al., NeurIPS 2021) of a task with
itself under two starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from lw2g.interfaces.evidence import Measure, Sample
from lw2g.interfaces.growth import Measured
from lw2g_growth.options import TrialConfig

__all__ = ["Trial"]


class Trial(Measure):
    """The held-out loss that reuse saves over growth after some steps."""

    needs = frozenset(("trial",))

    def __init__(self, config: TrialConfig) -> None:
        self.config = config

    def measure(self, sample: Sample) -> Mapping[int, Measured]:
        """Return the gain of every candidate."""
        config, draws = self.config, range(self.config.draws)
        grown = torch.stack([sample.trial(None, config.steps, draw) for draw in draws]).double()
        found = {}
        for one in sample.candidates:
            reused = torch.stack([sample.trial(one.set, config.steps, draw) for draw in draws]).double()
            gains = grown - reused  # [draws, images], paired
            each, by_draw = gains.mean(dim=0), gains.mean(dim=1)
            variance = float(each.var()) / len(each) if len(each) > 1 else 0.0
            if len(by_draw) > 1:
                variance += float(by_draw.var()) / len(by_draw)
            found[one.set] = Measured(
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
        return found
