"""Registers the retrieval strategies."""

from __future__ import annotations

from lw2g.interfaces.component import RetrievalComponent
from lw2g.registry.markers import hookimpl
from lw2g_retrieval.centroids import CENTROIDS
from lw2g_retrieval.class_keys import CLASS_KEYS
from lw2g_retrieval.classifier import CLASSIFIER
from lw2g_retrieval.key_cosine import KEY_COSINE
from lw2g_retrieval.lora_classifier import LORA_CLASSIFIER
from lw2g_retrieval.oracle import ORACLE

__all__ = ["lw2g_retrievals"]


@hookimpl
def lw2g_retrievals() -> list[RetrievalComponent]:
    """Return the retrieval strategies."""
    return [CENTROIDS, CLASS_KEYS, CLASSIFIER, KEY_COSINE, LORA_CLASSIFIER, ORACLE]
