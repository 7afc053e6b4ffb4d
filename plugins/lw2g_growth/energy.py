"""Energy outside the old tasks' activations: how much of a new task is new to a set.

``rho = 1 - tr(B' C B) / tr C`` per tap, averaged over taps: C is the second moment of the new task's
un-prompted activations, and B a basis of (95 % of) the old tasks', un-prompted too: under different sets they
would differ for that alone. A space leaves more of *new* images of its own task outside than of those that it
was built from (in 64 dimensions 23 % for the 5 % that 16 images promise), so rho is compared with ``own``,
what the set's own tasks leave outside of spaces that the other three quarters of their images gave. That
makes it free of the rank.

SEMA (Wang et al., CVPR 2025) grows by ``z = |residual - mu| / sd`` of an auto-encoder per adapter. The best
linear one is such a basis about the old mean: :class:`Novelty` is that z with its sign, mu and sd of images
held out.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from lw2g.plugin import (
    Candidate,
    Measure,
    Measurement,
    Sample,
    SecondMoment,
    SpaceOptions,
    Subspace,
    Tap,
    half_samples,
    spread_over_halves,
)
from lw2g_growth.averages import mean_of_known
from lw2g_growth.options import EnergyConfig

__all__ = ["Energy", "Novelty"]

_FOLDS = 8


class _Residuals(Measure):
    """Stores spaces of un-prompted activations, and the energy of held-out images outside of them."""

    needs = frozenset(("moments",))
    stores = "end"
    store_needs = frozenset(("moments",))

    def store(self, sample: Sample) -> Mapping[str, Tensor]:
        """Extend the set's spaces by the task; add the residuals of each eighth of it, held out."""
        (candidate,) = sample.candidates
        stored = sample.stored.get(candidate.set, {})
        state: dict[str, Tensor] = {}
        for tap in _taps(candidate):
            groups = sample.moments([tap])[tap]
            old = _part(stored, tap)
            folds = torch.arange(len(groups)) % _FOLDS
            # residuals of the set's own images, one table ``[3, groups]`` a fold, after those of older tasks
            own = [torch.zeros(3, 0, dtype=torch.float64)]
            if old:
                own.insert(0, old["own"])
            num_folds = _FOLDS if len(groups) >= _FOLDS else 0  # too few images to hold some out
            for fold in range(num_folds):
                unseen = folds == fold
                # the space that these images would have met, had they been a new task
                space, mean = self.extended(old, _total(groups, ~unseen), sample.space_options)
                left_out = [groups[number] for number in unseen.nonzero()[:, 0].tolist()]
                images = torch.bincount(sample.groups)[unseen]
                own.append(_residuals(left_out, space, self.centre(mean, groups), images))
            # what is stored is the space of all images: those held out serve for ``own`` alone
            whole = _total(groups, folds >= 0)
            space, mean = self.extended(old, whole, sample.space_options)
            rows = old.get("rows", torch.zeros(())) + whole.count
            values = space.state() | {"mean": mean, "rows": rows}
            values["own"] = torch.cat(own, dim=1)
            for name, value in values.items():
                state[f"{tap}|{name}"] = value
        return state

    def extended(
        self, old: Mapping[str, Tensor], new: SecondMoment, options: SpaceOptions
    ) -> tuple[Subspace, Tensor]:
        """Return the space and the mean ``[dim]`` of old activations and some new ones.

        Args:
            old: What :meth:`store` has stored of the tap; empty before the set's first task.
            new: The second moment of the new ones.
            options: How spaces are built and extended.
        """
        num_old = 0.0
        row_sum = new.row_sum
        if old:
            num_old = float(old["rows"])
            row_sum = row_sum + old["mean"].to(row_sum) * num_old
        mean = row_sum / max(num_old + new.count, 1)
        about = self.centre(mean, [new])
        shifted = new if about is None else _about(new, about)
        if not old:
            return options.build(shifted), mean
        return options.extend(Subspace.from_state(old), shifted), mean

    @abstractmethod
    def centre(self, mean: Tensor, groups: Sequence[SecondMoment]) -> Tensor | None:
        """Return what rows are centred on: the set's mean, that of the given groups, or None for nothing."""

    def tables(self, sample: Sample, candidate: Candidate) -> dict[Tap, tuple[Tensor, Tensor, Subspace]]:
        """Return by tap the residuals of the new task and of the set's own tasks, and the stored space.

        Residuals are those of :func:`_residuals`, ``[3, groups]``. Taps without a stored space are left out.
        """
        stored = sample.stored.get(candidate.set, {})
        images = torch.bincount(sample.groups)
        by_tap = {}
        for tap in _taps(candidate):
            old = _part(stored, tap)
            if not old:
                continue
            groups = sample.moments([tap])[tap]
            space = Subspace.from_state(old)
            about = self.centre(old["mean"], groups)
            by_tap[tap] = _residuals(groups, space, about, images), old["own"], space
        return by_tap


class Energy(_Residuals):
    """The share of the new task's energy outside the old spaces, and that of the set's own tasks."""

    def __init__(self, config: EnergyConfig) -> None:
        self._centre = config.centre

    def centre(self, mean: Tensor, groups: Sequence[SecondMoment]) -> Tensor | None:
        """Return the mean of the given groups, ``[dim]``; None unless the options centre activations."""
        if not self._centre:
            return None
        whole = _total(groups, torch.ones(len(groups)).bool())  # all of them
        return whole.row_sum / max(whole.count, 1)

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return rho of every candidate with stored spaces."""
        shares = {}
        halves = half_samples(torch.arange(sample.num_groups), sample.generator("half-samples"))
        for candidate in sample.candidates:
            residuals = []
            by_tap = {}
            for tap, (of_new, of_own, space) in self.tables(sample, candidate).items():
                residuals.append(of_new)
                by_tap[str(tap)] = _shares(of_new, of_own, space)
            if not by_tap:
                continue
            # [taps, 3, groups]: energy outside, energy, number of images
            new = torch.stack(residuals)
            value = _ratio(new)
            spread = spread_over_halves(partial(_ratio_of_groups, new), halves, sample.left_out)
            shares[candidate.set] = Measurement(
                value=value,
                error=spread.error,
                replicates=spread.replicates,
                null=mean_of_known([numbers["null"] for numbers in by_tap.values()]),
                own=mean_of_known([numbers["own"] for numbers in by_tap.values()]),
                n=len(sample),
                unit="share",
                alike=-1,  # the more lies outside, the less alike are the tasks
                sites=by_tap,  # all sites at a tap read the same activations
                why="there is no energy" if value is None else None,
            )
        return shares


class Novelty(_Residuals):
    """Standard deviations of a set's own residuals by which the new task's mean residual exceeds theirs."""

    def centre(self, mean: Tensor, groups: Sequence[SecondMoment]) -> Tensor | None:
        """Return the set's mean: an auto-encoder has a bias."""
        return mean

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return z of every candidate whose own residuals have a spread."""
        scores = {}
        halves = half_samples(torch.arange(sample.num_groups), sample.generator("half-samples"))
        for candidate in sample.candidates:
            tables = self.tables(sample, candidate)
            if not tables:
                continue
            scales = {}
            for tap, (_, own, _) in tables.items():
                scale = _scale(own)
                if scale is not None:
                    scales[tap] = scale
            if not scales:
                scores[candidate.set] = Measurement(alike=-1, why="too few images of its own to compare with")
                continue
            # of taps that have a scale; ``new`` is [taps, 3, groups] as in Energy, the others [taps] each
            new = torch.stack([tables[tap][0] for tap in scales])
            mu, sd = torch.tensor(list(scales.values()), dtype=torch.float64).T
            z_of_taps = _z_of(new, mu, sd, torch.arange(sample.num_groups))
            mean_z = partial(_mean_z, new, mu, sd)
            spread = spread_over_halves(mean_z, halves, sample.left_out)
            by_tap: dict[str, dict[str, float | None]] = {}
            for tap, z in zip(scales, z_of_taps, strict=True):
                by_tap[str(tap)] = {"value": float(z)}
            scores[candidate.set] = Measurement(
                value=float(z_of_taps.mean()),
                error=spread.error,
                replicates=spread.replicates,
                own=0.0,  # z counts from the mean of the set's own residuals
                n=len(sample),
                unit="standard deviations",
                alike=-1,  # the larger the residual, the less alike are the tasks
                sites=by_tap,
            )
        return scores


def _taps(candidate: Candidate) -> list[Tap]:
    # once each: several sites of a block read the same activations
    return list(dict.fromkeys(site.activation.tap for site in candidate.sites.values()))


def _part(stored: Mapping[str, Tensor], tap: Tap) -> dict[str, Tensor]:
    start = f"{tap}|"
    return {name.removeprefix(start): value for name, value in stored.items() if name.startswith(start)}


def _total(groups: Sequence[SecondMoment], chosen: Tensor) -> SecondMoment:
    (total,) = SecondMoment.subsets(groups, chosen.to(torch.float64)[None])
    return total


def _about(moment: SecondMoment, mean: Tensor) -> SecondMoment:
    """Return the second moment of the rows less a vector ``[heads, width]``."""
    shifted = SecondMoment(moment.dim, moment.heads, moment.matrix.device)
    mean = mean.to(moment.matrix)
    # sum of (x - m)(x - m)' = C - s m' - m s' + n m m', for the row sum s
    mixed = moment.row_sum[:, :, None] * mean[:, None]
    shifted.matrix = moment.matrix - mixed - mixed.mT + moment.count * mean[:, :, None] * mean[:, None]
    shifted.row_sum = moment.row_sum - moment.count * mean
    shifted.count = moment.count
    return shifted


def _residuals(
    groups: Sequence[SecondMoment], space: Subspace, about: Tensor | None, images: Tensor
) -> Tensor:
    """Return energy outside the space, energy, and number of images by group, ``[3, groups]`` float64."""
    rows = []
    for moment in groups:
        shifted = moment if about is None else _about(moment, about)
        matrix = shifted.matrix
        basis = space.basis.to(matrix)
        energy = matrix.diagonal(dim1=-2, dim2=-1).sum(dim=-1).sum()
        inside = (basis * (matrix @ basis)).sum()  # tr(B' C B)
        # where all energy lies inside, the difference may round to below 0
        outside = (energy - inside).clamp(min=0)
        rows.append(torch.stack([outside, energy]))
    return torch.cat([torch.stack(rows, dim=1).cpu(), images[None].double()])


def _ratio(table: Tensor) -> float | None:
    """Return the share outside, mean over taps, from ``[taps, 3, groups]``; None where no tap has energy."""
    # sums of all groups before the division: images count alike, not groups
    outside, energy, _ = table.sum(dim=2).T
    known = energy > 0
    if not known.any():
        return None
    return float((outside[known] / energy[known]).mean())


def _ratio_of_groups(table: Tensor, groups: Tensor) -> float | None:
    return _ratio(table[:, :, groups])


def _shares(new: Tensor, own: Tensor, space: Subspace) -> dict[str, float | None]:
    """Return what a measurement tells of a site: the new task's share outside a space, and its own task's."""
    return {
        "value": _ratio(new[None]),
        "own": _ratio(own[None]),
        # a random space of this rank leaves so much outside
        "null": 1 - space.rank / space.dim,
        "rank": space.rank,
        "dim": space.dim,
    }


def _z_of(new: Tensor, mu: Tensor, sd: Tensor, groups: Tensor) -> Tensor:
    """Return how many deviations new images lie beyond a set's own, by tap.

    Args:
        new: Residuals of the groups of new images, ``[taps, 3, groups]``.
        mu: Mean of the set's own, ``[taps]``.
        sd: Their standard deviation.
        groups: The groups that count.
    """
    part = new[:, :, groups].sum(dim=2)
    # what lies outside, over the number of images
    return (part[:, 0] / part[:, 2] - mu) / sd


def _mean_z(new: Tensor, mu: Tensor, sd: Tensor, groups: Tensor) -> float:
    return float(_z_of(new, mu, sd, groups).mean())


def _scale(own: Tensor) -> tuple[float, float] | None:
    """Return mean and standard deviation by image of the residuals of groups ``[3, groups]``."""
    outside, _, images = own
    if own.shape[1] < 2:
        return None
    mu = float(outside.sum() / images.sum())
    # a group's mean varies less than an image, by the root of its size
    sd = math.sqrt(float((images * (outside / images - mu).square()).sum()) / (own.shape[1] - 1))
    if sd <= 0:
        return None
    return mu, sd
