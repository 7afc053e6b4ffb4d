"""What scikit-learn has under other names in its older releases, down to 1.4."""

from __future__ import annotations

from typing import Any

from sklearn.utils import validation

__all__ = ["validated"]


def validated(estimator: Any, *arrays: Any, **options: Any) -> Any:
    """Check and convert input, and note or compare its features, as ``validate_data`` of release 1.6 does."""
    if hasattr(validation, "validate_data"):
        return validation.validate_data(estimator, *arrays, **options)
    return estimator._validate_data(*arrays, **options)
