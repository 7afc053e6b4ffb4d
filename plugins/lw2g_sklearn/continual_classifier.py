"""A classifier of scikit-learn that takes classes when they come, and forgets them exactly."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from lw2g.errors import DataError, nearest, shown
from lw2g.interfaces.defaults import DEFAULT_HEAD
from lw2g_sklearn.conventions import validated
from lw2g_sklearn.growing_head import GrowingHead, build_head

__all__ = ["ContinualClassifier"]

Labels = npt.NDArray[Any]
_DTYPES = (np.float64, np.float32)
"""Other numbers become the first one."""


class ContinualClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A head in closed form that learns new classes by ``partial_fit`` and forgets any by ``forget``.

    ``fit(A + B)`` and ``fit(A).partial_fit(B)`` give the same predictions and probabilities up to rounding,
    whatever the order of rows and classes, and ``forget`` leaves what ``fit`` makes without those rows. For
    this, and to calibrate its probabilities, the classifier keeps the rows that it has learned, as lw2g's
    learnable models keep features.

    Args:
        head: A head whose scores do not depend on how rows are cut into calls, such as ``"lda"``,
            ``"ridge"``, ``"cosine"``, ``"mahalanobis"`` or ``"anacp"``. ``ridge`` chooses its penalty by
            generalised cross-validation.
        options: Options of the head by their names, such as ``{"shrinkage": 0.1}``; ``lw2g plugins HEAD``
            lists them.
        head_features: Random features of heads that have some (``ridge`` and ``anacp``); 0 lets ``ridge``
            read the rows themselves.
        random_state: Of what the head draws: a number for the same head each time.

    Attributes:
        classes_: Labels of the classes that it knows, sorted: the columns of the probabilities.
        n_features_in_: Width of the rows.
        feature_names_in_: Names of their columns, where these have some.

    >>> classifier = ContinualClassifier().fit([[0.0], [0.1], [1.0], [1.1]], ["a", "a", "b", "b"])
    >>> classifier.partial_fit([[2.0], [2.1]], ["c", "c"]).predict([[2.05]]).tolist()
    ['c']
    >>> classifier.forget("b").classes_.tolist()
    ['a', 'c']
    """

    _growing: GrowingHead

    def __init__(
        self,
        head: str = DEFAULT_HEAD,
        *,
        options: Mapping[str, Any] | None = None,
        head_features: int = 2000,
        random_state: Any = 0,
    ) -> None:
        self.head = head
        self.options = options
        self.head_features = head_features
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn rows from the beginning.

        Args:
            X: ``[n, dim]``.
            y: The class of each row, ``[n]``: numbers or strings.

        Raises:
            ValueError: The input is none that scikit-learn takes.
            ConfigError: There is no such head or option.
        """
        rows, labels = self._checked(X, y, reset=True)
        make_head = partial(
            build_head,
            name=self.head,
            options=dict(self.options or {}),
            features=self.head_features,
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            dim=rows.shape[1],
        )
        return self._learn(GrowingHead(make_head), labels[:0], rows, labels)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn rows in addition, of classes that it knows or of new ones.

        Args:
            X: ``[n, dim]``.
            y: The class of each row, ``[n]``.
            classes: All labels that may come, as other classifiers of scikit-learn ask for; nothing needs
                them here. Where they are given, a row of another class is refused. A class is known, and in
                ``classes_``, from its first row on.

        Raises:
            ValueError: As :meth:`fit`.
            DataError: A label is not among ``classes``, or of another type than those that it knows.
        """
        if classes is not None:
            _require_among(np.unique(y), np.asarray(classes))
        if not hasattr(self, "_growing"):
            return self.fit(X, y)
        rows, labels = self._checked(X, y, reset=False)
        _require_alike(self._labels, labels)
        return self._learn(self._growing, self._labels, rows, labels)

    def forget(self, classes: Any) -> Self:
        """Forget classes, as if no row of them had been learned.

        Args:
            classes: A label, or several.

        Raises:
            DataError: It knows no such class, or would know none any more.
        """
        check_is_fitted(self, "_growing")
        gone = np.unique(np.atleast_1d(np.asarray(classes)))
        for label in gone.tolist():
            if label not in self.classes_.tolist():
                close = nearest(label, self.classes_.tolist()) if isinstance(label, str) else ""
                raise DataError(
                    f"no class is called {shown(label)}{close}", "classes_ has those that are known"
                )
        left = ~np.isin(self._labels, gone)
        if not left.any():
            raise DataError(
                "forget: no class would be left",
                "make another classifier, which knows none until it is fitted",
            )
        self._growing = self._growing.without(set(np.flatnonzero(~left).tolist()))
        self._know(self._labels[left])
        return self

    def predict(self, X: Any) -> Labels:
        """Return the class of each row, ``[n]``."""
        best = self._scores(X).argmax(1).numpy()
        chosen: Labels = self.classes_[best]
        return chosen

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the probability of each of :attr:`classes_`, ``[n, classes]``.

        They are calibrated: a temperature divides the scores, which has the least log loss on learned rows,
        each left out of the sums (of more than 2^36 / dim^2 rows some of each class). Where no row can be
        left out (each class has one, or the head knows no way to do it, as ``anacp``), a warning says that
        they are as sure as the scores.
        """
        probabilities: npt.NDArray[np.float64] = self._tempered(X).softmax(1).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the logarithms of :meth:`predict_proba`, ``[n, classes]``."""
        logarithms: npt.NDArray[np.float64] = self._tempered(X).log_softmax(1).numpy()
        return logarithms

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the score of each of :attr:`classes_`, ``[n, classes]``; the largest wins.

        Of two classes, as scikit-learn has it, how far the second is above the first, ``[n]``.
        """
        scores: npt.NDArray[np.float64] = self._scores(X).numpy()
        if len(self.classes_) == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def _tempered(self, X: Any) -> torch.Tensor:
        """Return scores at the temperature, ``[n, classes]``, and warn where there is none."""
        scores = self._scores(X)
        temperature = self._growing.temperature
        if temperature is None and len(self.classes_) > 1:
            warnings.warn(
                "probabilities are not calibrated: no row can be left out of the sums of this head; learn "
                "several rows of a class, or take another head, such as 'lda'",
                stacklevel=3,
            )
        return scores / (temperature or 1.0)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[torch.Tensor, Labels]:
        """Return rows and labels as they are learned."""
        _require_no_text(X)
        rows, labels = validated(self, X, y, reset=reset, dtype=_DTYPES)
        _require_classes(labels)
        return _tensor(rows), labels

    def _learn(self, growing: GrowingHead, known: Labels, rows: torch.Tensor, labels: Labels) -> Self:
        """Add rows to a head that knows classes, and keep it."""
        new = np.setdiff1d(labels, known)
        every = np.concatenate([known, new])
        order = np.argsort(every)
        positions = order[np.searchsorted(every, labels, sorter=order)]
        growing.learn(rows, torch.from_numpy(positions), [str(label) for label in new.tolist()])
        self._growing = growing
        self._know(every)
        return self

    def _know(self, labels: Labels) -> None:
        """Note the classes of the head, by position."""
        self._labels = labels
        self._order = np.argsort(labels)
        self.classes_ = labels[self._order]

    def _scores(self, X: Any) -> torch.Tensor:
        """Return the score of each class in their sorted order, ``[n, classes]`` float64."""
        check_is_fitted(self, "_growing")
        _require_no_text(X)
        rows = _tensor(validated(self, X, reset=False, dtype=_DTYPES))
        scores: torch.Tensor = self._growing.scores(rows)[:, self._order]
        return scores


def _tensor(rows: npt.NDArray[Any]) -> torch.Tensor:
    """Return an array as torch takes it: joblib maps large ones read-only, and a slice may run backwards."""
    return torch.from_numpy(np.require(rows, requirements=["C", "W"]))


def _require_no_text(rows: Any) -> None:
    """Refuse paths of images, or labels, in the place of rows.

    Raises:
        DataError: The first of them is one.
    """
    first = rows
    if isinstance(rows, list | tuple | np.ndarray) and len(rows):
        first = rows[0]
    if isinstance(first, str | Path):
        raise DataError(
            f"X: {str(first)!r} is no row of numbers",
            "lw2g.sklearn.FeatureExtractor makes rows of images",
        )


def _require_classes(labels: Labels) -> None:
    """Refuse labels that are none; scikit-learn's own check warns of few rows a class, which are usual here.

    Raises:
        ValueError: They are, as scikit-learn says it.
    """
    if labels.dtype.kind == "f" and (labels != np.floor(labels)).any():
        raise ValueError("Unknown label type: continuous; give numbers without fractions, or strings")
    if _kind(labels) == "objects":
        raise ValueError("Unknown label type: unknown; give numbers or strings, and not both")


def _kind(labels: Labels) -> str:
    """Return of which type labels are."""
    if labels.dtype.kind in "OSU":
        return "strings" if all(isinstance(label, str) for label in labels.tolist()) else "objects"
    return "truth values" if labels.dtype.kind == "b" else "numbers"


def _require_alike(known: Labels, labels: Labels) -> None:
    """Refuse labels of another type: joined, numbers would become strings, which are other labels.

    Raises:
        DataError: They are.
    """
    if _kind(known) != _kind(labels):
        raise DataError(
            f"the labels are {_kind(labels)}, and those of the known classes are {_kind(known)}",
            "give labels of one type",
        )


def _require_among(labels: Labels, classes: Labels) -> None:
    """Refuse labels that are not among those that were announced.

    Raises:
        DataError: The first one.
    """
    strange = labels[~np.isin(labels, classes)]
    if len(strange):
        raise DataError(
            f"classes: {shown(strange.tolist()[0])} is the class of a row, and is not among them",
            "add it, or leave `classes` out: classes may be new at any call",
        )
