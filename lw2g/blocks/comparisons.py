"""Half-samples of the groups of D_sub: the errors of measures, and which groups are compared for Z.

The error of a statistic comes from the same statistic on disjoint halves of the groups: it holds where an
integer rank cut, or a noisy gradient's squared length, makes a delete-one jackknife fail. Z compares the
gradient of some groups with the pre-trained space of others (ruling f), so that a half is a plan of
comparisons itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs
import torch
from torch import Tensor

__all__ = ["Comparisons", "Spread", "disjoint_halves", "half_samples", "in_sample", "spread_over_halves"]

_PARTITIONS = 8
_PERMUTATIONS = 8
_Pairs = list[tuple[Tensor, Tensor]]


@attrs.frozen(kw_only=True, eq=False)
class Comparisons:
    """Subsets of groups, which of them are compared, and what the comparisons add up to.

    A table of values, ``[..., width, subsets]``, holds one value per comparison: entry ``[w, s]`` is that of
    the gradient of subset ``gradient[w, s]`` with the space of subset ``s``.

    Attributes:
        subsets: Which groups belong to a subset, ``[subsets, groups]``, 0 or 1.
        gradient: Subsets of the gradients, ``[width, subsets]``; where nothing is compared, any.
        whole: Weights of the comparisons that make Z, ``[width, subsets]``.
        halves: The same for the statistic on either half of the groups, ``[2, n, width, subsets]``; n is 0
            where there are too few groups.
        share: Groups in a half, as a share of all groups.
    """

    subsets: Tensor
    gradient: Tensor
    whole: Tensor
    halves: Tensor
    share: float

    def value(self, table: Tensor) -> Tensor:
        """Return the statistic on all groups, ``[...]``; NaN where no comparison is defined."""
        return _weighted(table, self.whole)

    def spread(self, table: Tensor, left_out: float = 1.0) -> Spread:
        """Return the standard error of the statistic, from a table by draw, ``[draws, width, subsets]``.

        Draws differ by what is drawn beside the images (a head), and by what it and the images do together.

        Args:
            table: The values.
            left_out: Share of all images that are not in the sample: a sample of all images has no error.
        """
        halves = _weighted(table.nanmean(dim=0), self.halves)
        return Spread.of(halves[0] - halves[1], self.share, left_out, self.value(table))


@attrs.frozen(kw_only=True)
class Spread:
    """How far a statistic would move on other images.

    Attributes:
        error: Its standard error; None where there are too few groups.
        replicates: Deviations under resampling, whose mean square is the square of the error; those of two
            statistics of the same halves and draws go together
            (:func:`~lw2g.interfaces.growth.error_of_difference`).
    """

    error: float | None = None
    replicates: tuple[float, ...] = ()

    @classmethod
    def of(cls, differences: Tensor, share: float, left_out: float, draws: Tensor | None = None) -> Spread:
        """Return the spread of a statistic from its differences between disjoint half-samples.

        The difference of two disjoint halves, each a share a of the groups, has the variance 2 V / a.

        Args:
            differences: ``[n]``; NaN where undefined.
            share: Groups in a half, as a share of all groups.
            left_out: Share of all images that are not in the sample.
            draws: The statistic by draw of something else, ``[draws]``, NaN where undefined; their mean is
                reported.
        """
        defined = int((~differences.isnan()).sum())
        if not defined:
            return cls()
        parts = [differences.double() * math.sqrt(share / 2 * left_out / defined)]
        if draws is not None and (known := int((~draws.isnan()).sum())) > 1:
            parts.append((draws.double() - draws.nanmean()) / math.sqrt(known * (known - 1)))
        # what is undefined keeps its place: replicates of two candidates are compared one by one
        deviations = torch.nan_to_num(torch.cat([part.cpu() for part in parts]), nan=0.0)
        replicates = deviations * math.sqrt(len(deviations))
        return cls(error=float(deviations.norm()), replicates=tuple(replicates.tolist()))


def half_samples(
    groups: Tensor, generator: torch.Generator, count: int = _PERMUTATIONS
) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of disjoint halves of a sample that is cut into groups, as positions of images.

    Args:
        groups: The group of each image, from 0, ``[n]``.
        generator: Draws them.
        count: How many pairs.

    Returns:
        No pairs where there is but one group.
    """
    number = int(groups.max()) + 1
    found = []
    for _ in range(count if number > 1 else 0):
        a, b = torch.randperm(number, generator=generator)[: number // 2 * 2].chunk(2)
        found.append((torch.isin(groups, a).nonzero()[:, 0], torch.isin(groups, b).nonzero()[:, 0]))
    return found


def spread_over_halves(
    statistic: Callable[[Tensor], float | None],
    halves: Sequence[tuple[Tensor, Tensor]],
    left_out: float,
) -> Spread:
    """Return the spread of a statistic of some images.

    Args:
        statistic: Its value on the images at given positions; None where it is undefined.
        halves: What :func:`half_samples` returned.
        left_out: Share of all images that are not in the sample.
    """
    pairs = [(statistic(one), statistic(other)) for one, other in halves]
    differences = [math.nan if one is None or other is None else one - other for one, other in pairs]
    return Spread.of(torch.tensor(differences, dtype=torch.float64), 0.5, left_out)


def disjoint_halves(groups: int, generator: torch.Generator) -> Comparisons:
    """Return the comparisons of gradients with spaces of other images.

    Z is the mean over random partitions into halves, either half giving the gradient once. For the error the
    groups are cut into quarters: any two make a half-sample, the other two the half-sample beside it.
    """
    if groups < 2:  # a sample of one image has no second half: space and gradient share it
        return in_sample(groups, generator)
    orders = [torch.randperm(groups, generator=generator) for _ in range(_PARTITIONS)]
    whole = [pair for order in orders for pair in _swapped(order[: groups // 2], order[groups // 2 :])]
    halves: list[tuple[_Pairs, _Pairs]] = []
    size = groups // 4
    for _ in range(_PERMUTATIONS if size else 0):
        a, b, c, d = torch.randperm(groups, generator=generator)[: 4 * size].chunk(4)
        halves += [
            (_swapped(*first), _swapped(*second))
            for first, second in (((a, b), (c, d)), ((a, c), (b, d)), ((a, d), (b, c)))
        ]
    return _table(groups, whole, halves, 2 * size / groups)


def in_sample(groups: int, generator: torch.Generator) -> Comparisons:
    """Return the comparison of the gradient with the space of the very same images (the papers' letter)."""
    everything = torch.arange(groups)
    size = groups // 2
    halves: list[tuple[_Pairs, _Pairs]] = []
    for _ in range(_PERMUTATIONS if size else 0):
        a, b = torch.randperm(groups, generator=generator)[: 2 * size].chunk(2)
        halves.append(([(a, a)], [(b, b)]))
    return _table(groups, [(everything, everything)], halves, size / groups)


def _swapped(one: Tensor, other: Tensor) -> _Pairs:
    return [(one, other), (other, one)]


def _table(groups: int, whole: _Pairs, halves: Sequence[tuple[_Pairs, _Pairs]], share: float) -> Comparisons:
    """Number the subsets and lay all comparisons out by the subset of their space."""
    numbers: dict[tuple[int, ...], int] = {}
    gradients: dict[int, list[int]] = {}

    def number(subset: Tensor) -> int:
        return numbers.setdefault(tuple(sorted(subset.tolist())), len(numbers))

    def place(pair: tuple[Tensor, Tensor]) -> tuple[int, int]:
        gradient, space = number(pair[0]), number(pair[1])
        column = gradients.setdefault(space, [])
        if gradient not in column:
            column.append(gradient)
        return column.index(gradient), space

    places = [place(pair) for pair in whole]
    half_places = [tuple([place(pair) for pair in half] for half in both) for both in halves]
    width = max(len(column) for column in gradients.values())
    shape = (width, len(numbers))
    gradient = torch.tensor([(gradients[s] * width)[:width] for s in range(len(numbers))]).T

    def weights(chosen: Sequence[tuple[int, int]]) -> Tensor:
        found = torch.zeros(shape, dtype=torch.float64)
        for at in chosen:
            found[at] += 1
        return found

    either = [[weights(both[side]) for both in half_places] for side in (0, 1)]
    return Comparisons(
        subsets=torch.stack(
            [torch.isin(torch.arange(groups), torch.tensor(one)).to(torch.float64) for one in numbers]
        ),
        gradient=gradient,
        whole=weights(places),
        halves=torch.stack([torch.stack(side) if side else torch.zeros(0, *shape) for side in either]),
        share=share,
    )


def _weighted(table: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted means of the defined values, NaN where there are none."""
    known = ~table.isnan()
    total = (weights * known).sum(dim=(-2, -1))
    return (weights * torch.where(known, table, 0.0)).sum(dim=(-2, -1)) / total
