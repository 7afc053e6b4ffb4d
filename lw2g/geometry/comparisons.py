"""Half-samples of the groups of D_sub: the standard errors of measures, and the comparisons behind Z.

The error of a statistic comes from its values on disjoint halves of the groups. This also works if an integer
rank or the squared length of a noisy gradient makes a delete-one jackknife fail. Z compares the gradient of
some groups with the pre-trained space of other groups, so that each half is a plan of comparisons itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs
import torch
from torch import Tensor

__all__ = [
    "Comparisons",
    "Spread",
    "disjoint_halves",
    "half_samples",
    "in_sample",
    "mean_of_known",
    "spread_over_halves",
]

_PARTITIONS = 8
_PERMUTATIONS = 8
_Pairs = list[tuple[Tensor, Tensor]]


@attrs.frozen(kw_only=True, eq=False)
class Comparisons:
    """A plan of comparisons between gradients and spaces of subsets of groups, with their weights.

    A table of values, ``[..., width, subsets]``, holds one value per comparison: entry ``[w, s]`` compares
    the gradient of subset ``gradient[w, s]`` with the space of subset ``s``.

    Attributes:
        subsets: Which groups belong to a subset, ``[subsets, groups]``, 0 or 1.
        gradient: Subsets of the gradients, ``[width, subsets]``; arbitrary where the weights are 0.
        whole: Weights of the comparisons that give Z, ``[width, subsets]``.
        halves: The same for the statistic on either half of the groups, ``[2, n, width, subsets]``; n is 0 if
            there are too few groups.
        share: Number of groups in a half over that of all groups.
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
        """Return the spread of the statistic.

        Args:
            table: The values for each draw of a head, ``[draws, width, subsets]``.
            left_out: Share of all images that are not in the sample: a sample of all images has no error.
        """
        halves = _weighted(table.nanmean(dim=0), self.halves)
        return Spread.of(halves[0] - halves[1], self.share, left_out, self.value(table))


@attrs.frozen(kw_only=True)
class Spread:
    """The variation of a statistic over samples of images.

    Attributes:
        error: Its standard error; None if there are too few groups.
        replicates: Deviations under resampling; their mean square is the square of the error. Statistics with
            the same halves and draws have paired replicates
            (:func:`~lw2g.interfaces.growth.error_of_difference`).
    """

    error: float | None = None
    replicates: tuple[float, ...] = ()

    @classmethod
    def of(cls, differences: Tensor, share: float, left_out: float, draws: Tensor | None = None) -> Spread:
        """Return the spread of a statistic from its differences between disjoint half-samples.

        With the variance V of the statistic, the difference of two disjoint halves, each a share a of the
        groups, has the variance 2 V / a.

        Args:
            differences: ``[n]``; NaN where undefined.
            share: Number of groups in a half over that of all groups.
            left_out: Share of all images that are not in the sample.
            draws: The statistic for each draw of a head, ``[draws]``, NaN where undefined; the statistic is
                their mean.
        """
        defined = int((~differences.isnan()).sum())
        if not defined:
            return cls()
        parts = [differences.double() * math.sqrt(share / 2 * left_out / defined)]
        if draws is not None and (count := int((~draws.isnan()).sum())) > 1:
            parts.append((draws.double() - draws.nanmean()) / math.sqrt(count * (count - 1)))
        # undefined deviations stay, as zeros: replicates of two candidates are paired by position
        deviations = torch.nan_to_num(torch.cat([part.cpu() for part in parts]), nan=0.0)
        replicates = deviations * math.sqrt(len(deviations))
        return cls(error=float(deviations.norm()), replicates=tuple(replicates.tolist()))


def half_samples(
    groups: Tensor, generator: torch.Generator, count: int = _PERMUTATIONS
) -> list[tuple[Tensor, Tensor]]:
    """Return random pairs of disjoint halves of a grouped sample, as positions of images.

    Args:
        groups: The group of each image, from 0, ``[n]``.
        generator: Draws the halves.
        count: Number of pairs.

    Returns:
        No pairs if there is only one group.
    """
    number = int(groups.max()) + 1
    pairs = []
    for _ in range(count if number > 1 else 0):
        a, b = torch.randperm(number, generator=generator)[: number // 2 * 2].chunk(2)
        pairs.append((torch.isin(groups, a).nonzero()[:, 0], torch.isin(groups, b).nonzero()[:, 0]))
    return pairs


def spread_over_halves(
    statistic: Callable[[Tensor], float | None],
    halves: Sequence[tuple[Tensor, Tensor]],
    left_out: float,
) -> Spread:
    """Return the spread of a statistic from its values on half-samples.

    Args:
        statistic: Returns its value on the images at given positions; None if undefined.
        halves: Half-samples that :func:`half_samples` returned.
        left_out: Share of all images that are not in the sample.
    """
    pairs = [(statistic(first), statistic(second)) for first, second in halves]
    differences = [math.nan if a is None or b is None else a - b for a, b in pairs]
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


def _swapped(first: Tensor, second: Tensor) -> _Pairs:
    return [(first, second), (second, first)]


def _table(groups: int, whole: _Pairs, halves: Sequence[tuple[_Pairs, _Pairs]], share: float) -> Comparisons:
    """Number the subsets, and arrange all comparisons by the subset of their space."""
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
        counts = torch.zeros(shape, dtype=torch.float64)
        for entry in chosen:
            counts[entry] += 1
        return counts

    either = [[weights(both[side]) for both in half_places] for side in (0, 1)]
    return Comparisons(
        subsets=torch.stack(
            [torch.isin(torch.arange(groups), torch.tensor(subset)).to(torch.float64) for subset in numbers]
        ),
        gradient=gradient,
        whole=weights(places),
        halves=torch.stack([torch.stack(side) if side else torch.zeros(0, *shape) for side in either]),
        share=share,
    )


def _weighted(table: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted means of the defined values, NaN where there are none."""
    defined = ~table.isnan()
    total = (weights * defined).sum(dim=(-2, -1))
    return (weights * torch.where(defined, table, 0.0)).sum(dim=(-2, -1)) / total


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are defined; None where there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
