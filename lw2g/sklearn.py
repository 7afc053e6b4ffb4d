"""Estimators of scikit-learn: ``from lw2g.sklearn import ContinualClassifier, FeatureExtractor``.

They are defined in the package ``lw2g_sklearn``, whose modules may move; this name stays. Importing this
module imports neither torch nor scikit-learn: a name does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lw2g_sklearn import ContinualClassifier, FeatureExtractor

__all__ = ["ContinualClassifier", "FeatureExtractor"]


if not TYPE_CHECKING:  # type checkers would take any name for one that exists

    def __getattr__(name: str) -> object:
        """Return an estimator."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("lw2g_sklearn"), name)
