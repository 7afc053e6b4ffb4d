"""Checks of the Gaussians that a head keeps: rejection and calibrated probabilities rest on them."""

from __future__ import annotations

import torch
from torch import Tensor

from lw2g.interfaces.head import GAUSSIAN_SHRINKAGE, ClosedForm
from lw2g.model.rejection import moments_of
from lw2g_testing.cases import ContractViolation, Subject, check, methods_of
from lw2g_testing.head_checks import CLASSES, declared, images_of, made, teach

_AGREE = 0.9
"""Least share of images for which two ways of shrinking one covariance find the same class."""
_SUMS = 1e-6
"""Relative difference of scatters that rounding may cause: sums of squares lose digits to differences."""
_ALIKE = 0.01
"""Share of differences between classes' scores by which those of distances may differ."""
_WIDE = 10_000
"""More than any head lifts features to here."""


def _keeps_gaussians(subject: Subject) -> bool:
    """Return whether a head writes class_gaussians; one that cannot be built concerns every check."""
    try:
        return type(made(subject)).class_gaussians is not ClosedForm.class_gaussians
    except Exception:  # the check itself reports it
        return True


@check("head", applies=_keeps_gaussians)
def check_gaussians_are_those_of_the_sums(subject: Subject) -> None:
    """class_gaussians returns the class means and the sum of squares about them, not divided by a count."""
    rows, labels = images_of()
    head = teach(made(subject), (3, 3), rows, labels)
    returned = head.class_gaussians(CLASSES, _WIDE)
    if returned is None:
        return
    lifted = head.lifted(rows.double())
    means = torch.stack([lifted[labels == label].mean(0) for label in range(CLASSES)])
    away = lifted - means[labels]
    scatter = away.T @ away
    where = methods_of(head, "class_gaussians")
    for what, told, expected in zip(("means", "scatter"), returned, (means, scatter), strict=True):
        if told.shape != expected.shape:
            raise ContractViolation(
                f"{where} returns {what} {list(told.shape)}; return the means {list(means.shape)} of lifted "
                f"features, and one scatter {list(scatter.shape)} of all classes"
            )
    if not _difference(returned[0], means) <= _SUMS:  # NaN, too
        raise ContractViolation(
            f"{where} returns means that differ by {_difference(returned[0], means):.1e} from those of the "
            "features it has learned; return those of lifted features, class by class"
        )
    if not _difference(returned[1], scatter) <= _SUMS:
        factor = float((returned[1] * scatter).sum() / scatter.square().sum())
        found = f"differs from it by {_difference(returned[1], scatter):.1e}"
        if factor > 0 and _difference(returned[1] / factor, scatter) <= _SUMS:
            found = f"is that divided by {1 / factor:.6g}"
        raise ContractViolation(
            "the scatter is the sum over images of (z - m)(z - m)', m the mean of the image's class; what "
            f"{where} returns {found}; return the sum: who reads it divides by the count"
        )


def _difference(one: Tensor, other: Tensor) -> float:
    """Return how far one tensor is from another, relative to the other's length."""
    return float((one - other).norm() / other.norm())


@check("head", applies=declared("nearest_gaussian"))
def check_predicts_the_nearest_gaussian(subject: Subject) -> None:
    """Differences of its scores are minus half those of squared distances to the Gaussians that it keeps."""
    rows, labels = images_of()
    head = teach(made(subject), (3, 3), rows, labels)
    gaussians = moments_of(head, CLASSES)
    if gaussians is None:
        raise ContractViolation("class_gaussians returns nothing; leave out nearest_gaussian = True")
    unseen = images_of(seed=7)[0].double()
    distances, *_ = gaussians.distances(head.lifted(unseen))
    scores = head.scores(unseen, CLASSES)
    agreeing = float((distances.argmin(1) == scores.argmax(1)).double().mean())
    if agreeing < _AGREE:
        raise ContractViolation(
            f"it predicts the nearest class for {agreeing:.0%} of images; leave out nearest_gaussian = True"
        )
    # what all classes of an image share enters no probability
    expected = -distances / 2
    expected = expected - expected.mean(1, keepdim=True)
    centred = scores - scores.mean(1, keepdim=True)
    if _difference(centred, expected) <= _ALIKE:
        return
    factor = float((centred * expected).sum() / expected.square().sum())
    found = f"differ from that by {_difference(centred, expected):.0%}"
    if _difference(centred / factor, expected) <= _ALIKE:
        found = f"are {factor:.3g} times that"
    share = f"{GAUSSIAN_SHRINKAGE:g}"
    raise ContractViolation(
        f"scores must differ between classes by minus half the squared distances, and they {found}: the "
        f"temperature of probabilities is fitted to the distances, by {1 - GAUSSIAN_SHRINKAGE:g} S + {share} "
        "v I with S the scatter / (images - classes) and v its mean variance. Let "
        f"{methods_of(head, 'solve', 'score')} take these, or leave out nearest_gaussian = True and write "
        "without_each"
    )
