"""Registers ``peft-lora`` and a metric; the entry point in ``pyproject.toml`` names this module.

Every lw2g command imports it, so it imports neither torch nor peft, which take seconds: ``lazy`` names the
code, which is imported when the baseline is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs
from attrs.validators import ge, gt

from lw2g.plugin import BaselineComponent, Metric, blocks_option, hookimpl, lazy, option

__all__ = ["PEFT_LORA", "WORST_TASK", "PeftLoraConfig", "lw2g_baselines", "lw2g_metrics"]


@attrs.frozen(kw_only=True)
class PeftLoraConfig:
    """Options of ``peft-lora``. LoRA was never published for class-incremental learning."""

    blocks: tuple[int, ...] = blocks_option((), "blocks that get an adapter; empty for all", empty=True)
    rank: int = option(8, "rank of an adapter", validator=ge(1))
    alpha: float = option(8.0, "an adapter is scaled by alpha / rank", validator=gt(0))
    init: Literal["gaussian", "kaiming"] = option(
        "gaussian",
        "how a down factor starts: as in the paper, or as peft does by default",
        published="gaussian",
    )
    init_from: Literal["previous", "random"] = option(
        "random",
        "what a new set starts from: the most recently trained one, or a random one",
    )
    epochs: int = option(20, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(64, "images per step", validator=ge(1), role="batch")
    lr: float = option(0.001, "learning rate of Adam", validator=gt(0))


_QUICK: Mapping[str, Any] = {"baseline.epochs": 5, "baseline.batch_size": 32, "baseline.lr": 0.005}

PEFT_LORA = BaselineComponent(
    name="peft-lora",
    config=PeftLoraConfig,
    summary="low-rank adapters of Hugging Face peft, one per block and set, chosen per sample",
    citation="Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022",
    build=lazy("lw2g_peft_adapters.baseline:PeftLora"),
    retrieval="centroids",
    tuned={"digits": _QUICK, "glyphs": _QUICK, "folder": _QUICK},
)


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the baseline."""
    return [PEFT_LORA]


def _worst(accuracy: Any) -> float:
    return float(accuracy[:, -1].min())


WORST_TASK = Metric(
    name="worst_task",
    summary="accuracy on the task that has the lowest one after the last task",
    needs=("accuracy",),
    compute=_worst,
    digits=1,
)


@hookimpl
def lw2g_metrics() -> list[Metric]:
    """Return the metric."""
    return [WORST_TASK]
