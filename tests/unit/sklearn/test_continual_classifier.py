"""ContinualClassifier: sums are exact in whatever pieces rows come, and scikit-learn takes it as its own."""

from __future__ import annotations

import io
import pickle
import warnings

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.sklearn import ContinualClassifier

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
HEADS = {
    "lda": {},
    "cosine": {},
    "mahalanobis": {},
    "ridge": {"head_features": 0},
    "random ridge": {"head": "ridge", "head_features": 40},
    "anacp": {"head_features": 40},
}


def made(head: str) -> ContinualClassifier:
    return ContinualClassifier(**{"head": head} | HEADS[head])


def probabilities(classifier: ContinualClassifier, rows: np.ndarray) -> np.ndarray:
    """Those of a head that cannot be calibrated, too."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "probabilities are not calibrated")
        return classifier.predict_proba(rows)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and numbers to learn, and others to ask for; in float64."""
    rows, numbers = load_digits(return_X_y=True)
    return rows[:600], numbers[:600], rows[600:900], numbers[600:900]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("names", [np.arange(10), NAMES], ids=["numbers", "strings"])
def test_pieces_give_what_the_whole_gives(head, names, digits):
    """Classes in any order, some again, rows shuffled: the same answers as of one call, to 1e-10."""
    rows, numbers, others, _ = digits
    whole = made(head).fit(rows, names[numbers])
    pieces = made(head)
    order = np.random.default_rng(0).permutation(len(rows))
    again = order[numbers[order] == 7]
    for piece in (
        again[:10],
        order[np.isin(numbers[order], [9, 2])],
        order[np.isin(numbers[order], [0, 1, 3, 4, 5, 6, 8])],
        again[10:],
    ):
        pieces.partial_fit(rows[piece], names[numbers[piece]])
    assert pieces.classes_.tolist() == whole.classes_.tolist() == sorted(names.tolist())
    np.testing.assert_allclose(
        probabilities(pieces, others), probabilities(whole, others), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("head", HEADS)
def test_what_is_forgotten_was_never_learned(head, digits):
    """Answers are those of a classifier without the classes, and these can be learned again."""
    rows, numbers, others, _ = digits
    left = ~np.isin(numbers, [0, 7])
    without = made(head).fit(rows[left], numbers[left])
    fewer = made(head).fit(rows, numbers).forget([7, 0])
    assert fewer.classes_.tolist() == without.classes_.tolist() == [1, 2, 3, 4, 5, 6, 8, 9]
    np.testing.assert_allclose(
        probabilities(fewer, others), probabilities(without, others), rtol=0, atol=1e-10
    )
    whole = made(head).fit(rows, numbers)
    fewer.partial_fit(rows[~left], numbers[~left])
    np.testing.assert_allclose(probabilities(fewer, others), probabilities(whole, others), rtol=0, atol=1e-10)


@given(st.data())
def test_any_cut_into_calls_is_the_same(data):
    """Few rows, some alone in their class, in calls of any size: as one call."""
    count = data.draw(st.integers(2, 12))
    numbers = np.array(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    draw = np.random.default_rng(data.draw(st.integers(0, 9)))
    rows = draw.normal(size=(count, 3)) + numbers[:, None]
    cuts = data.draw(st.sets(st.integers(1, count - 1)))
    whole = ContinualClassifier().fit(rows, numbers)
    pieces = ContinualClassifier()
    for piece in np.split(draw.permutation(count), sorted(cuts)):
        pieces.partial_fit(rows[piece], numbers[piece])
    np.testing.assert_allclose(probabilities(pieces, rows), probabilities(whole, rows), rtol=0, atol=1e-10)


def test_probabilities_are_as_large_as_answers_are_right(digits):
    """The mean probability is near the accuracy on other rows; without the temperature it is not."""
    rows, numbers, others, expected = digits
    classifier = ContinualClassifier("cosine").fit(rows, numbers)
    sure = classifier.predict_proba(others)
    accuracy = (classifier.predict(others) == expected).mean()
    np.testing.assert_allclose(sure.sum(1), 1)
    assert (classifier.classes_[sure.argmax(1)] == classifier.predict(others)).all()
    assert abs(sure.max(1).mean() - accuracy) < 0.04
    assert accuracy > 0.8  # raw cosines of ten classes would be 0.12 sure


def test_probabilities_that_are_not_calibrated_say_so():
    """Where each class has one row, none can be left out."""
    classifier = ContinualClassifier().fit([[0.0], [1.0]], ["a", "b"])
    with pytest.warns(UserWarning, match="probabilities are not calibrated: no row can be left out"):
        sure = classifier.predict_proba([[0.0]])
    assert sure[0, 0] > sure[0, 1]


@pytest.mark.parametrize("head", ["lda", "ridge", "cosine", "mahalanobis"])
def test_scikit_learn_finds_nothing_to_complain_of(head):
    """All of its checks pass, none of them is named as one that may fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)  # of libraries that are not installed
        check_estimator(made(head))


def test_it_is_cloned_searched_and_stored(digits):
    """In a pipeline: clone, GridSearchCV over heads and their options, pickle, joblib; all answer alike."""
    rows, numbers, others, _ = digits
    pipeline = make_pipeline(StandardScaler(), ContinualClassifier())
    grid = [
        {"continualclassifier__head": ["cosine", "mahalanobis"]},
        {"continualclassifier__options": [{"shrinkage": 0.01}, {"shrinkage": 1.0}]},
    ]
    search = GridSearchCV(clone(pipeline), grid, cv=2).fit(rows[:200], numbers[:200])
    assert len(set(search.cv_results_["mean_test_score"])) == 4  # each of them was tried
    pipeline.fit(rows, numbers)
    expected = pipeline.predict_proba(others)
    # what scorers ask for beside it
    np.testing.assert_allclose(np.exp(pipeline.predict_log_proba(others)), expected)
    order = pipeline.decision_function(others).argsort(1)
    np.testing.assert_array_equal(pipeline.classes_[order[:, -1]], pipeline.predict(others))
    file = io.BytesIO()
    joblib.dump(pipeline, file)
    file.seek(0)
    for again in (pickle.loads(pickle.dumps(pipeline)), joblib.load(file)):
        np.testing.assert_array_equal(again.predict_proba(others), expected)
    # the steps before are fitted: the last one alone learns
    pipeline[-1].partial_fit(pipeline[:-1].transform(rows[:5] + 20), [10] * 5)
    assert pipeline.predict(rows[:5] + 20).tolist() == [10] * 5


def test_what_was_learned_is_not_the_callers_array():
    """An array that is filled again changes nothing of what was learned."""
    rows = np.array([[0.0, 1.0], [0.2, 1.0], [1.0, 0.0], [1.2, 0.0]])
    classifier = ContinualClassifier().fit(rows, [0, 0, 1, 1])
    expected = ContinualClassifier().fit(rows[:2], [0, 0])
    rows[:] = 7
    np.testing.assert_array_equal(
        classifier.forget(1)._growing.rows[0].numpy(), expected._growing.rows[0].numpy()
    )


def test_rows_may_lie_backwards_and_be_read_only(digits):
    """As slices do, and as joblib hands over large arrays to its processes."""
    rows, numbers, others, _ = digits
    expected = ContinualClassifier().fit(rows, numbers).predict_proba(others)
    rows = rows[::-1].copy()
    rows.flags.writeable = False
    turned = ContinualClassifier().fit(rows[::-1], numbers)
    np.testing.assert_allclose(turned.predict_proba(others[::-1])[::-1], expected, atol=1e-10)


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda fitted: fitted.forget("doog"), DataError, r"'doog' \(did you mean 'dog'\?\); classes_ has"),
        (lambda fitted: fitted.forget(["dog", "cat"]), DataError, "forget: no class would be left"),
        (lambda fitted: fitted.partial_fit([[1.0]], [3]), DataError, "numbers, and those of .* are strings"),
        (
            lambda fitted: fitted.partial_fit([[1.0]], ["owl"], classes=["dog", "cat"]),
            DataError,
            "classes: 'owl' is the class of a row, and is not among them",
        ),
        (
            lambda fitted: fitted.fit(["a.jpg"], ["cat"]),
            DataError,
            r"X: 'a\.jpg' is no row of numbers; lw2g\.sk",
        ),
        (lambda fitted: fitted.predict("photos"), DataError, "X: 'photos' is no row of numbers"),
        (lambda fitted: fitted.score(["cat"], [[0.0]]), DataError, "X: 'cat' is no row of numbers"),
        (lambda fitted: fitted.fit([[1.0]], [0.5]), ValueError, "Unknown label type: continuous"),
        (lambda _: ContinualClassifier("lad").fit([[1.0]], [0]), Lw2gError, "did you mean 'lda'"),
        (lambda _: ContinualClassifier("klda").fit([[1.0]], [0]), ConfigError, "'klda' with these options"),
        (
            lambda _: ContinualClassifier(options={"shrink": 1}).fit([[1.0]], [0]),
            ConfigError,
            r"head\.lda\.shrink: no such option \(did you mean 'shrinkage'\?\)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_one_line_and_loses_nothing(call, kind, said):
    """The message says what to do, and the classifier is as it was."""
    fitted = ContinualClassifier().fit([[0.0], [0.1], [2.0], [2.1]], ["cat", "cat", "dog", "dog"])
    before = fitted.predict_proba([[0.4]])
    with pytest.raises(kind, match=said) as raised:
        call(fitted)
    assert "\n" not in str(raised.value)
    np.testing.assert_array_equal(fitted.predict_proba([[0.4]]), before)


def test_nothing_can_be_forgotten_before_something_is_learned():
    """The error is scikit-learn's own."""
    with pytest.raises(NotFittedError):
        ContinualClassifier().forget("cat")
