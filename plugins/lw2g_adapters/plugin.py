"""Registers the adapter baselines; their code is imported when one is built."""

from __future__ import annotations

from lw2g.plugin import BaselineComponent, Deviation, PresetFile, hookimpl, lazy
from lw2g_adapters import options

__all__ = ["EASE", "MOS", "SEMA", "TUNA", "lw2g_baselines"]

_PRESETS = PresetFile("lw2g_adapters")


_OLD_SETS = Deviation(
    topic="baseline.old_sets",
    value="frozen",
    published="moved by the orthogonality term and by weight decay",
    note="the release goes on training the up-projections of old sets, and goes on using their features",
)

_OWN_ERRORS = Deviation(
    topic="baseline.own_errors",
    value="of all images of the task, by the finished descriptor",
    published="the last 500 images of its training",
    note="novelty should not depend on the order of images, nor on a descriptor that is still training",
)
_BLOCK_BY_BLOCK = Deviation(
    topic="baseline.scan",
    value="once per block, the shallowest first",
    published="batch by batch over all blocks, again after every growth",
    note="the same where whole tasks are novel; with single batches a deeper block may grow first",
)

_KEPT_SETS = Deviation(
    topic="baseline.finished_sets",
    value="answer as their task left them",
    published="merged again at every block of every forward, in statistics and tests too",
    note="the release's answers depend on how many batches came before; five leave little of a set",
)

EASE = BaselineComponent(
    name="ease",
    config=options.EaseConfig,
    summary="an adapter per task; class means in the subspace of each, old ones synthesised in new subspaces",
    citation="Zhou et al., Expandable Subspace Ensemble for Pre-Trained Model-Based CIL, CVPR 2024",
    build=lazy("lw2g_adapters.ease:Ease"),
    query_sites=False,
    presets=_PRESETS.official("ease"),
    tuned=_PRESETS.tuned("ease"),
)

TUNA = BaselineComponent(
    name="tuna",
    config=options.TunaConfig,
    summary="an adapter per task, the most certain of which answers beside a merge of all of them",
    citation="Wang et al., Integrating Task-Specific and Universal Adapters for Pre-Trained Model-based CIL, "
    "ICCV 2025",
    build=lazy("lw2g_adapters.tuna:Tuna"),
    query_sites=False,
    presets=_PRESETS.official("tuna"),
    tuned=_PRESETS.tuned("tuna"),
    deviations=(_OLD_SETS,),
)


MOS = BaselineComponent(
    name="mos",
    config=options.MosConfig,
    summary="an adapter per task, drawn towards the mean of the others; its prediction refines the choice",
    citation="Sun et al., MOS: Model Surgery for Pre-Trained Model-Based CIL, AAAI 2025",
    build=lazy("lw2g_adapters.mos:Mos"),
    query_sites=False,
    presets=_PRESETS.official("mos"),
    tuned=_PRESETS.tuned("mos"),
    deviations=(_KEPT_SETS,),
)

SEMA = BaselineComponent(
    name="sema",
    config=options.SemaConfig,
    summary="adapters mixed by a router, added block by block where a task is novel to all descriptors",
    citation="Wang et al., Self-Expansion of Pre-trained Models with Mixture of Adapters for Continual "
    "Learning, CVPR 2025",
    build=lazy("lw2g_adapters.sema:Sema"),
    has_sites=False,
    growth="fixed",
    presets=_PRESETS.official("sema"),
    tuned=_PRESETS.tuned("sema"),
    deviations=(_OWN_ERRORS, _BLOCK_BY_BLOCK),
)


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the adapter baselines."""
    return [EASE, MOS, SEMA, TUNA]
