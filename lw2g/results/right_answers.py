"""What a run answers to its test images in the end, named so that runs can be paired image by image."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import compress, count

import attrs
import numpy as np
import numpy.typing as npt

from lw2g.disk.contents import PREDICTIONS, prediction_name
from lw2g.disk.sealed import sha256_of
from lw2g.errors import DataError, as_word
from lw2g.results.found_runs import ReportedRun
from lw2g.results.recomputed import Columns, read_columns
from lw2g.results.summaries import wilson

__all__ = [
    "RightAnswers",
    "lacks_answers",
    "may_answer_alike",
    "require_whole_answers",
    "right_answers",
    "right_answers_of",
    "shared_answers",
]

_SAME = 0.01
"""Points by which a recorded accuracy may be off that of the predictions, added up in another order."""


@attrs.frozen(kw_only=True, eq=False)
class RightAnswers:
    """The answers of one run to its test images.

    Attributes:
        images: What names each image in every run on the same data: its class there, its domain, and its
            place among the images of both.
        right: ``[N]`` whether the answer is the true class.
        shares: ``[N]`` what each image counts in the final accuracy, in which all tasks count alike; sum 1.
        predicted: ``[N]`` the class of each answer, named as ``images`` names classes; empty if not known.
    """

    images: Sequence[Hashable]
    right: npt.NDArray[np.bool_]
    shares: npt.NDArray[np.float64]
    predicted: Sequence[Hashable] = ()

    @property
    def accuracy(self) -> float:
        """The final accuracy in per cent (FAA); equal answers in another order give equal bits."""
        # a sum of numpy's depends on the order of its terms, and on the processor
        return 100.0 * math.fsum(self.shares[self.right])

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of that accuracy over test images (Wilson).

        Images that do not count alike tell as much as ``1 / sum(shares^2)`` that do (Kish, 1965).
        """
        low, high = wilson(min(self.accuracy, 100.0), 1.0 / float(self.shares @ self.shares))
        return low, high

    def p_against(self, others: RightAnswers) -> float:
        """Return the two-sided p value of McNemar's exact test against other answers to the same images.

        It is over the images that one of the two alone has right, each of which counts once.
        """
        from scipy.special import bdtr  # here, so that reports without pairs start without scipy

        right = set(compress(self.images, self.right))
        others_right = set(compress(others.images, others.right))
        gained, lost = len(right - others_right), len(others_right - right)
        return min(1.0, 2 * float(bdtr(min(gained, lost), gained + lost, 0.5)))


def right_answers(
    columns: Columns, names: Sequence[Hashable], tasks: npt.NDArray[np.int64], domains: Sequence[str] = ()
) -> RightAnswers:
    """Return the answers in a file of predictions.

    Args:
        columns: The predictions after the last task.
        names: What names each target in every run on the same data.
        tasks: ``[N]`` the task of each image.
        domains: The domain of each task; empty where there is one alone.
    """
    named = [names[target] for target in columns["true"].tolist()]
    within = [domains[task] if domains else "" for task in tasks.tolist()]
    met: dict[Hashable, Iterator[int]] = defaultdict(count)
    places_of_kinds = [next(met[kind]) for kind in zip(named, within, strict=True)]
    images = list(zip(named, within, places_of_kinds, strict=True))
    _, places, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    shares = 1.0 / (len(counts) * counts[places])
    return RightAnswers(
        images=images,
        right=columns["predicted"] == columns["true"],
        shares=shares,
        predicted=[names[target] for target in columns["predicted"].tolist()],
    )


def require_whole_answers(run: ReportedRun) -> None:
    """Refuse a run with a file of predictions that is not as its record lists it, after any of its tasks.

    A pack, or a record alone, has no folder of them: nothing there has been edited or lost.

    Raises:
        DataError: A file is another, or is missing.
    """
    if not (run.path / PREDICTIONS).is_dir():
        return
    for name, wanted in run.record.get("files", {}).items():
        if not name.startswith(f"{PREDICTIONS}/"):
            continue
        checksum = sha256_of(run.path / name)
        if checksum == wanted:
            continue
        wrong = "does not match its checksum: it is damaged or was edited"
        if checksum is None:
            wrong = "is missing"
        remedy = f"make it anew: lw2g resume {as_word(run.path)}"
        raise DataError(f"{name} of the run {str(run.path)!r} {wrong}", remedy)


def lacks_answers(run: ReportedRun) -> bool:
    """Whether a run, or a copy of its record, is without all the predictions that the record lists."""
    listed = any(name.startswith(f"{PREDICTIONS}/") for name in run.record.get("files", {}))
    return listed and not (run.path / PREDICTIONS).is_dir()


def right_answers_of(run: ReportedRun) -> RightAnswers | None:
    """Return the answers of a run; None where its predictions are not at hand or give another accuracy.

    Class orders permute the targets: ``class_order`` of the record says which class of the data each is. That
    the predictions are those of the record is for :func:`require_whole_answers`, once a run.
    """
    columns = run.answers
    if columns is None:
        path = run.path / prediction_name(run.done - 1)
        if not path.is_file():
            return None
        columns = read_columns(path)
    answers = right_answers(
        columns, run.record["class_order"], columns["task"].astype(np.int64), run.record.get("domains") or ()
    )
    accuracy = run.metric("faa")
    return answers if accuracy is not None and abs(answers.accuracy - accuracy) < _SAME else None


def may_answer_alike(runs: Sequence[ReportedRun]) -> bool:
    """Whether runs have the same test images and get as many of them right, as their records tell.

    It spares reading their predictions, and these name images by their places alone.
    """
    if len({run.metric("faa_samples") for run in runs}) > 1:
        return False
    tested = {tuple(sorted(run.record.get("image_hashes") or ())) for run in runs}
    if tested != {()}:
        return len(tested) == 1
    # without hashes of images: a fingerprint tells, which covers the order, too
    draws_tested = any(run.options.get("benchmark.test_share") for run in runs)
    return not draws_tested or len({run.record["fingerprints"]["benchmark"] for run in runs}) == 1


def shared_answers(answers: Sequence[RightAnswers]) -> RightAnswers | None:
    """Return the answers that several runs share, in which an image has its mean share; None if they differ.

    A head that sees no class order answers alike in all orders, which are then no draws of anything. Wrong
    answers are the same where they name the same class.

    Args:
        answers: Those of each run, to the same images (:func:`may_answer_alike`).
    """
    first = answers[0]
    predicted = dict(zip(first.images, first.predicted, strict=True))
    shares = dict.fromkeys(first.images, 0.0)
    for own in answers:
        if dict(zip(own.images, own.predicted, strict=True)) != predicted:
            return None
        for image, share in zip(own.images, own.shares.tolist(), strict=True):
            shares[image] += share / len(answers)
    return attrs.evolve(first, shares=np.array(list(shares.values())))
