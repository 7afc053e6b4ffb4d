"""Registers the adapter baselines; their code is imported when one is built."""

from __future__ import annotations

from lw2g.blocks import rows
from lw2g.interfaces.component import BaselineComponent, lazy
from lw2g.interfaces.deviations import Deviation
from lw2g.registry.markers import hookimpl
from lw2g_adapters import options, presets

__all__ = ["EASE", "MOS", "SEMA", "TUNA", "lw2g_baselines"]

_AUGREG = {**rows.SEED_1993, **rows.HIDE, "backbone.name": "sup21k-augreg"}
_ROWS = {
    "imagenet-r": {**_AUGREG, **rows.LAMDA_FOLDERS},
    "vtab": {**rows.NATURAL, **rows.HIDE, "backbone.name": "sup21k-augreg"},
}

_OLD_SETS = Deviation(
    topic="baseline.old_sets",
    value="frozen",
    published="moved by the orthogonality term and by weight decay",
    note="the release trains the up-projections of old sets on, whose features it goes on using",
)

_OWN_ERRORS = Deviation(
    topic="baseline.own_errors",
    value="of all images of the task, by the finished descriptor",
    published="the last 500 met while it was trained",
    note="what is novel should not depend on the order of images, nor on a descriptor that is still moving",
)
_BLOCK_BY_BLOCK = Deviation(
    topic="baseline.scan",
    value="once per block, the shallowest first",
    published="batch by batch over all blocks, again after every growth",
    note="the same where whole tasks are novel; with single batches a deeper block may come first there",
)

_KEPT_SETS = Deviation(
    topic="baseline.finished_sets",
    value="answer as their task left them",
    published="merged again at every block whenever they are asked, in statistics and tests",
    note="the release's answers depend on how many batches were asked before; five leave little of a set",
)

EASE = BaselineComponent(
    name="ease",
    config=options.EaseConfig,
    summary="an adapter per task; class means in the subspace of each, old ones synthesised in new subspaces",
    citation="Zhou et al., Expandable Subspace Ensemble for Pre-Trained Model-Based CIL, CVPR 2024",
    build=lazy("lw2g_adapters.ease:Ease"),
    presets=rows.with_rows(presets.EASE_OFFICIAL, {}, _AUGREG, _ROWS),
    tuned=presets.EASE_TUNED,
)

TUNA = BaselineComponent(
    name="tuna",
    config=options.TunaConfig,
    summary="an adapter per task, the surest of which answers beside a merge of all of them",
    citation="Wang et al., Integrating Task-Specific and Universal Adapters for Pre-Trained Model-based CIL, "
    "ICCV 2025",
    build=lazy("lw2g_adapters.tuna:Tuna"),
    presets=rows.with_rows(presets.TUNA_OFFICIAL, {}, _AUGREG, _ROWS),
    tuned=presets.TUNA_TUNED,
    deviations=(_OLD_SETS,),
)


MOS = BaselineComponent(
    name="mos",
    config=options.MosConfig,
    summary="an adapter per task, drawn to the mean of the others, and found by what it answers",
    citation="Sun et al., MOS: Model Surgery for Pre-Trained Model-Based CIL, AAAI 2025",
    build=lazy("lw2g_adapters.mos:Mos"),
    presets=rows.with_rows(presets.MOS_OFFICIAL, {}, _AUGREG, _ROWS),
    tuned=presets.MOS_TUNED,
    deviations=(_KEPT_SETS,),
)

SEMA = BaselineComponent(
    name="sema",
    config=options.SemaConfig,
    summary="adapters mixed by a router, added block by block where a task is novel to all descriptors",
    citation="Wang et al., Self-Expansion of Pre-trained Models with Mixture of Adapters for Continual "
    "Learning, CVPR 2025",
    build=lazy("lw2g_adapters.sema:Sema"),
    growth="fixed",
    presets=rows.with_rows(presets.SEMA_OFFICIAL, {}, _AUGREG, {**_ROWS, "imagenet-a": _ROWS["vtab"]}),
    tuned=presets.SEMA_TUNED,
    deviations=(_OWN_ERRORS, _BLOCK_BY_BLOCK),
)


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the adapter baselines."""
    return [EASE, MOS, SEMA, TUNA]
