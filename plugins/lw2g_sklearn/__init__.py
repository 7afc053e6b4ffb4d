"""Heads and backbones of lw2g as estimators of scikit-learn.

Programs import them from :mod:`lw2g.sklearn`. Importing this package imports neither torch nor scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lw2g_sklearn.continual_classifier import ContinualClassifier
    from lw2g_sklearn.feature_extractor import FeatureExtractor

__all__ = ["ContinualClassifier", "FeatureExtractor"]

_HOMES = {
    "ContinualClassifier": "lw2g_sklearn.continual_classifier",
    "FeatureExtractor": "lw2g_sklearn.feature_extractor",
}


def __getattr__(name: str) -> Any:
    """Return an estimator."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
