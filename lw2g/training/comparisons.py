"""Which groups of D_sub give the gradient and which the pre-trained space, for Z and for the error of Z.

Z compares the gradient of some groups with the pre-trained space of others (ruling f). Its error comes from
half-samples: the same statistic on disjoint halves of the groups, each with spaces of its own. That holds
where an integer rank cut makes a delete-one jackknife fail.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

__all__ = ["Comparisons", "disjoint_halves", "in_sample"]

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

    def variance(self, table: Tensor) -> float | None:
        """Return the sampling variance of the statistic from one table ``[width, subsets]``.

        The difference of two disjoint halves, each a share a of the groups, has the variance 2 V / a.
        """
        values = _weighted(table, self.halves)
        squares = (values[0] - values[1]).square()
        squares = squares[~squares.isnan()]
        return float(squares.mean()) * self.share / 2 if len(squares) else None


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
