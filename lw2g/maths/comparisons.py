"""Half-samples of the evidence sample: the standard errors of measures, and the comparisons behind Z.

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
    "half_samples",
    "spread_over_halves",
]

_PARTITIONS = 8
"""Random partitions into halves over which Z is averaged."""
_PERMUTATIONS = 8
"""Random orders of the groups from which half-samples for errors are cut."""
_Pairs = list[tuple[Tensor, Tensor]]
"""Comparisons: the groups of the gradient, and those of the space."""


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

    @classmethod
    def disjoint_halves(cls, groups: int, generator: torch.Generator) -> Comparisons:
        """Return the comparisons of gradients with spaces of other images.

        Z is the mean over random partitions into halves, either half giving the gradient once. For the error
        the groups are cut into quarters: any two make a half-sample, the other two its complement.
        """
        if groups < 2:  # a sample of one image has no second half: space and gradient share it
            return cls.in_sample(groups, generator)
        whole: _Pairs = []
        for _ in range(_PARTITIONS):
            order = torch.randperm(groups, generator=generator)
            whole += _both_ways(order[: groups // 2], order[groups // 2 :])
        size = groups // 4
        halves: list[tuple[_Pairs, _Pairs]] = []
        if size:
            for _ in range(_PERMUTATIONS):
                a, b, c, d = torch.randperm(groups, generator=generator)[: 4 * size].chunk(4)
                # four quarters make three pairs of half-samples
                halves.append((_both_ways(a, b), _both_ways(c, d)))
                halves.append((_both_ways(a, c), _both_ways(b, d)))
                halves.append((_both_ways(a, d), _both_ways(b, c)))
        return _table(groups, whole, halves, 2 * size / groups)  # a half-sample is two quarters

    @classmethod
    def in_sample(cls, groups: int, generator: torch.Generator) -> Comparisons:
        """Return the comparison of the gradient with the space of its own images (the papers' letter)."""
        everything = torch.arange(groups)
        size = groups // 2
        halves: list[tuple[_Pairs, _Pairs]] = []
        if size:
            for _ in range(_PERMUTATIONS):
                a, b = torch.randperm(groups, generator=generator)[: 2 * size].chunk(2)
                halves.append(([(a, a)], [(b, b)]))
        return _table(groups, [(everything, everything)], halves, size / groups)

    def value(self, table: Tensor) -> Tensor:
        """Return the statistic on all groups, ``[...]``; NaN where no comparison is defined."""
        return _weighted(table, self.whole)

    def spread(self, table: Tensor, left_out: float = 1.0) -> Spread:
        """Return the spread of the statistic.

        Args:
            table: The values for each draw of a head, ``[draws, width, subsets]``.
            left_out: Share of all images that are not in the sample: a sample of all images has no error.
        """
        of_mean_draw = table.nanmean(dim=0)
        first, second = _weighted(of_mean_draw, self.halves)  # of each pair of halves, [n] each
        return Spread.of(first - second, self.share, left_out, self.value(table))


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
        if draws is not None:
            count = int((~draws.isnan()).sum())
            if count > 1:  # the draws of the head add their own variance, that of the mean of count values
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
    num_groups = int(groups.max()) + 1
    if num_groups < 2:
        return []
    pairs = []
    for _ in range(count):
        # of an odd number of groups one is left out, so that both halves are equally large
        chosen = torch.randperm(num_groups, generator=generator)[: num_groups // 2 * 2]
        first, second = chosen.chunk(2)
        pairs.append((_positions(groups, first), _positions(groups, second)))
    return pairs


def _positions(groups: Tensor, chosen: Tensor) -> Tensor:
    """Return the positions of the images of chosen groups."""
    return torch.isin(groups, chosen).nonzero()[:, 0]


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
    differences = []
    for first, second in halves:
        value = statistic(first)
        other = statistic(second)
        if value is None or other is None:
            differences.append(math.nan)
        else:
            differences.append(value - other)
    return Spread.of(torch.tensor(differences, dtype=torch.float64), 0.5, left_out)


def _both_ways(first: Tensor, second: Tensor) -> _Pairs:
    """Return two comparisons: either part gives the gradient once, the other one the space."""
    return [(first, second), (second, first)]


def _table(groups: int, whole: _Pairs, halves: Sequence[tuple[_Pairs, _Pairs]], share: float) -> Comparisons:
    """Number the subsets, and arrange all comparisons by the subset of their space."""
    numbers: dict[tuple[int, ...], int] = {}  # of subsets, in the order in which they occur
    gradients: dict[int, list[int]] = {}  # by the number of the space: those compared with it

    def number(subset: Tensor) -> int:
        """Return the number of a subset, which gets the next one if it has none yet."""
        return numbers.setdefault(tuple(sorted(subset.tolist())), len(numbers))

    def place(pair: tuple[Tensor, Tensor]) -> tuple[int, int]:
        """Return row and column of a comparison, which gets a row if it has none yet."""
        gradient = number(pair[0])
        space = number(pair[1])
        column = gradients.setdefault(space, [])
        if gradient not in column:
            column.append(gradient)
        return column.index(gradient), space

    # all get their places first: they decide how large the tables of weights are
    whole_places = list(map(place, whole))
    half_places = []
    for first, second in halves:
        half_places.append((list(map(place, first)), list(map(place, second))))
    width = max(map(len, gradients.values()))
    shape = (width, len(numbers))

    def weights(places: Sequence[tuple[int, int]]) -> Tensor:
        """Return how often each comparison stands among some, ``[width, subsets]``."""
        counts = torch.zeros(shape, dtype=torch.float64)
        for entry in places:
            counts[entry] += 1
        return counts

    weights_of_halves = torch.zeros(2, len(halves), *shape, dtype=torch.float64)
    for index, (first_places, second_places) in enumerate(half_places):
        weights_of_halves[0, index] = weights(first_places)
        weights_of_halves[1, index] = weights(second_places)
    columns = []
    for space in range(len(numbers)):
        # short columns are filled up with what they have: the weights there are 0
        columns.append((gradients[space] * width)[:width])
    members = torch.zeros(len(numbers), groups, dtype=torch.float64)
    for index, subset in enumerate(numbers):
        members[index, list(subset)] = 1
    return Comparisons(
        subsets=members,
        gradient=torch.tensor(columns).T,
        whole=weights(whole_places),
        halves=weights_of_halves,
        share=share,
    )


def _weighted(table: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted means of the defined values, NaN where there are none."""
    defined = ~table.isnan()
    total = (weights * defined).sum(dim=(-2, -1))
    return (weights * torch.where(defined, table, 0.0)).sum(dim=(-2, -1)) / total
