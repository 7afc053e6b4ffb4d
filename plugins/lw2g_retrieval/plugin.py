"""Registers the retrieval strategies; their code is imported when one is built."""

from __future__ import annotations

from lw2g.plugin import Deviation, RetrievalComponent, hookimpl, lazy
from lw2g_retrieval import options

__all__ = [
    "CENTROIDS",
    "CLASSIFIER",
    "CLASS_KEYS",
    "KEY_COSINE",
    "LDA",
    "LORA_CLASSIFIER",
    "MAHALANOBIS",
    "ORACLE",
    "RIDGE",
    "lw2g_retrievals",
]

_SEEN_KEYS = Deviation(
    topic="retrieval.keys_of_future_tasks",
    value="no candidates",
    published="candidates",
    note="the released code lets test samples choose untrained keys",
)
_KEYS_FREE = Deviation(
    topic="retrieval.keys",
    value="neither measured nor projected",
    published="measured and projected with the prompt",
    note="the paper's set is prompt and key, the released code takes the prompt; old keys are frozen instead",
    when="spaces",
)

CENTROIDS = RetrievalComponent(
    name="centroids",
    config=options.CentroidsConfig,
    summary="k-means centroids of each task's features; the nearest centroid names the task",
    citation="Wang et al., S-Prompts Learning with Pre-trained Transformers, NeurIPS 2022",
    build=lazy("lw2g_retrieval.centroids:Centroids"),
)

CLASS_KEYS = RetrievalComponent(
    name="class-keys",
    config=options.ClassKeysConfig,
    summary="one learned key per class; the task of the nearest key's class is taken",
    citation="Gao et al., Consistent Prompting for Rehearsal-Free Continual Learning, CVPR 2024",
    build=lazy("lw2g_retrieval.class_keys:ClassKeys"),
)

CLASSIFIER = RetrievalComponent(
    name="classifier",
    config=options.ClassifierConfig,
    summary="a classifier on un-prompted features; the task of the predicted class is taken",
    citation="Wang et al., Hierarchical Decomposition of Prompt-Based Continual Learning, NeurIPS 2023",
    build=lazy("lw2g_retrieval.classifier:Classifier"),
)

KEY_COSINE = RetrievalComponent(
    name="key-cosine",
    config=options.KeyCosineConfig,
    summary="learned prompt keys; the nearest key by cosine similarity names the task",
    citation="Wang et al., Learning to Prompt for Continual Learning, CVPR 2022",
    build=lazy("lw2g_retrieval.key_cosine:KeyCosine"),
    deviations=(_SEEN_KEYS, _KEYS_FREE),
)

LDA = RetrievalComponent(
    name="lda",
    config=options.LdaConfig,
    summary="linear discriminant analysis of un-prompted features, in closed form; the best class's task",
    build=lazy("lw2g_retrieval.closed_form_retrieval:lda"),
)

LORA_CLASSIFIER = RetrievalComponent(
    name="lora-classifier",
    config=options.LoraClassifierConfig,
    summary="a classifier on features under a low-rank update shared by all tasks",
    citation="Wang et al., HiDe-PET: Hierarchical Decomposition of Parameter-Efficient Tuning, TPAMI 2025",
    build=lazy("lw2g_retrieval.lora_classifier:LoraClassifier"),
)

MAHALANOBIS = RetrievalComponent(
    name="mahalanobis",
    config=options.MahalanobisConfig,
    summary="nearest class mean of un-prompted features, each class under its own covariance",
    citation="Goswami et al., FeCAM: Exploiting the Heterogeneity of Class Distributions, NeurIPS 2023",
    build=lazy("lw2g_retrieval.closed_form_retrieval:mahalanobis"),
)

ORACLE = RetrievalComponent(
    name="oracle",
    config=options.OracleConfig,
    summary="control: the true task of each test sample, looked up in its label",
    build=lazy("lw2g_retrieval.oracle:Oracle"),
    control=True,
)

RIDGE = RetrievalComponent(
    name="ridge",
    config=options.RidgeConfig,
    summary="ridge regression on random features of un-prompted ones; the best class's task",
    citation="McDonnell et al., RanPAC: Random Projections and Pre-trained Models, NeurIPS 2023",
    build=lazy("lw2g_retrieval.closed_form_retrieval:ridge"),
)


@hookimpl
def lw2g_retrievals() -> list[RetrievalComponent]:
    """Return the retrieval strategies."""
    return [CENTROIDS, CLASS_KEYS, CLASSIFIER, KEY_COSINE, LDA, LORA_CLASSIFIER, MAHALANOBIS, ORACLE, RIDGE]
