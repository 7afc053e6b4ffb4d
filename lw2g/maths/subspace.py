"""Representation subspaces: the directions that hold most of the energy of the activations at a site.

A subspace is built from the second moment of activation rows (:mod:`lw2g.maths.moments`), whose
eigenvectors are the left singular vectors of the data matrix (gradient projection memory, Saha et al. 2021;
LW2G, sections on the old and the pre-trained feature space). Attention computes logits per head, so the space
of a query is the direct sum of one space per head. ``heads=1`` is the joint form of the papers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import attrs
import torch
from torch import Tensor

from lw2g.maths.moments import SecondMoment, head_width, split_heads, traces

__all__ = [
    "Residual",
    "Rule",
    "Subspace",
    "captured_shares",
    "image",
    "union",
]

Rule = Literal["reach", "below"]
Residual = Literal["pcp", "pc"]

_EPS = torch.finfo(torch.float64).eps


@attrs.frozen(kw_only=True, eq=False)
class Subspace:
    """A subspace of R^dim, the direct sum of one subspace per head.

    ``basis`` is [heads, dim / heads, k_max] with orthonormal columns, zero padded on the right to the largest
    rank of a head; ``ranks`` has the number of true columns per head. :meth:`build`, :meth:`extend`,
    :func:`union`, :func:`image`, :meth:`complement` and :meth:`empty` return float64; :meth:`to` casts.

    >>> axis = Subspace(basis=torch.tensor([[[1.0], [0.0]]]), ranks=(1,))
    >>> axis.on(torch.tensor([3.0, 4.0])), axis.off(torch.tensor([3.0, 4.0]))
    (tensor([3., 0.]), tensor([0., 4.]))

    Raises:
        ValueError: The basis is not a floating point [heads, width, max(ranks)] tensor.
    """

    basis: Tensor = attrs.field()
    ranks: tuple[int, ...] = attrs.field()

    @basis.validator
    def _check_basis(self, _: attrs.Attribute[Tensor], value: Tensor) -> None:
        if value.ndim != 3 or not value.is_floating_point() or not (value.shape[0] and value.shape[1]):
            got = f"{value.dtype} {tuple(value.shape)}"
            raise ValueError(f"expected a floating point basis [heads, width, rank] but got {got}")

    @ranks.validator
    def _check_ranks(self, _: attrs.Attribute[tuple[int, ...]], value: tuple[int, ...]) -> None:
        heads, width, columns = self.basis.shape
        if len(value) != heads or min(value) < 0 or max(value) != columns or columns > width:
            raise ValueError(f"expected {heads} ranks from 0 to {min(columns, width)} but got {value!r}")

    @classmethod
    def empty(cls, dim: int, heads: int = 1, device: torch.device | str | None = None) -> Subspace:
        """Return the subspace {0} of R^dim.

        Raises:
            ValueError: ``heads`` does not divide ``dim``, or one of them is not positive.
        """
        basis = torch.zeros(heads, head_width(dim, heads), 0, dtype=torch.float64, device=device)
        return cls(basis=basis, ranks=(0,) * heads)

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Subspace:
        """Return the subspace that :meth:`state` described.

        Raises:
            ValueError: The columns are not orthonormal up to the square root of the rounding unit.
        """
        ranks = tuple(map(int, state["ranks"].tolist()))
        space = cls(basis=state["basis"], ranks=ranks)
        filled = torch.arange(space.basis.shape[2]) < torch.tensor(ranks)[:, None]  # [heads, k_max]
        expected = torch.diag_embed(filled.to(space.basis))
        error = (space.basis.mT @ space.basis - expected).abs().max() if expected.numel() else torch.zeros(())
        if not error <= torch.finfo(space.basis.dtype).eps ** 0.5:  # nor may it be NaN
            raise ValueError(f"expected an orthonormal basis but got one that is off by {float(error):.2g}")
        return space

    @classmethod
    def build(cls, moment: SecondMoment, energy: float, *, power: int = 2, rule: Rule = "reach") -> Subspace:
        """Return the leading eigenvectors of C that hold the share ``energy`` of each head's own energy.

        ``power`` 2 weights a direction by its eigenvalue (a squared singular value of the data), 4 by its
        square. ``rule`` "reach" keeps the fewest directions whose cumulative share is at least ``energy``;
        "below" counts the cumulative shares strictly below it, one direction less (possibly none).
        ``energy=1`` gives the numerical rank of the data: directions with energy at rounding level are never
        kept.

        >>> moment = SecondMoment(3)
        >>> moment.update(torch.diag(torch.tensor([3.0, 2.0, 1.0])))  # energies 9, 4 and 1 of 14
        >>> [Subspace.build(moment, 0.9, power=power).rank for power in (2, 4)]
        [2, 2]
        >>> Subspace.build(moment, 0.9, rule="below").rank
        1

        Raises:
            ValueError: ``energy`` is outside (0, 1], ``power`` is not 2 or 4, the rule is unknown, or the
                moment holds values that are not finite.
        """
        if rule not in ("reach", "below"):
            raise ValueError(f"expected rule 'reach' or 'below' but got {rule!r}")
        empty = cls.empty(moment.dim, moment.heads, moment.matrix.device)
        return _appended(empty, moment, energy, power=power, residual="pcp", short=int(rule == "below"))

    @staticmethod
    def side_by_side(spaces: Sequence[Subspace]) -> Subspace:
        """Return the direct sum of spaces of one width, each with its own columns of the sum's rows.

        >>> axis = Subspace(basis=torch.tensor([[[1.0], [0.0]]]), ranks=(1,))
        >>> Subspace.side_by_side([axis, axis]).on(torch.tensor([3.0, 4.0, 5.0, 6.0]))
        tensor([3., 0., 5., 0.])

        Raises:
            ValueError: No space is given, or the widths of their heads differ.
        """
        widths = {space.basis.shape[1] for space in spaces}
        if len(widths) != 1:
            raise ValueError(f"expected spaces whose heads have one width but got {sorted(widths)}")
        columns: list[Tensor] = []
        for space in spaces:
            columns += _columns_of_heads(space.basis, space.ranks)
        return _pack(columns)

    @property
    def heads(self) -> int:
        """Number of heads in the direct sum; 1 is the joint form."""
        return self.basis.shape[0]

    @property
    def dim(self) -> int:
        """Width of a whole row."""
        return self.basis.shape[0] * self.basis.shape[1]

    @property
    def rank(self) -> int:
        """Total number of directions over all heads."""
        return sum(self.ranks)

    @property
    def is_empty(self) -> bool:
        """Whether the subspace is {0}, which protects nothing."""
        return self.rank == 0

    @property
    def is_full(self) -> bool:
        """Whether the subspace is all of R^dim."""
        return self.rank == self.dim

    def on(self, rows: Tensor) -> Tensor:
        """Return the part of ``rows`` [..., dim] inside the subspace, ``(x B) B^T``.

        It takes two thin products per head, in the dtype and on the device of the rows. A basis of another
        dtype or device is cast on every call; cast it once with :meth:`to` if that takes too long.

        Raises:
            ValueError: The rows are not floating point or not ``dim`` wide.
        """
        basis = self.basis.to(dtype=rows.dtype, device=rows.device)
        split = split_heads(rows, self.dim, self.heads)  # [heads, n, width]
        inside = (split @ basis) @ basis.mT
        return inside.transpose(0, 1).reshape(rows.shape)

    def off(self, rows: Tensor) -> Tensor:
        """Return the part of ``rows`` [..., dim] orthogonal to the subspace, ``x - (x B) B^T``.

        Raises:
            ValueError: The rows are not floating point or not ``dim`` wide.
        """
        return rows - self.on(rows)

    def extend(
        self, moment: SecondMoment, energy: float, *, power: int = 2, residual: Residual = "pcp"
    ) -> Subspace:
        """Return the space with the fewest directions appended that reach the share ``energy`` of ``moment``.

        Per head, with P the projection off the old columns and mu the singular values of the residual: h
        directions are enough when what they leave over, ``sum_{i>h} mu_i``, is at most
        ``(1 - energy) sum_i lambda_i(C)`` (LW2G stage 2, with the rank-h truncation its printed inequality
        lacks). A head that already reaches ``energy`` stays as it is. For ``power=4`` both sums are over
        squares of the same values, so the directions and their order are those of ``power=2``. Old columns
        are kept bit for bit (in float64, on the device of the moment) and come first.

        ``residual`` "pcp" is ``P C P``, the second moment of the rows' part outside the space. "pc" is the
        one-sided ``P C`` of released code (with ``power=4``): it counts correlation between old and new
        directions as missing, and so appends at least as many directions.

        Raises:
            ValueError: As :meth:`build`, the residual is unknown, or space and moment differ in width or
                heads.
        """
        if residual not in ("pcp", "pc"):
            raise ValueError(f"expected residual 'pcp' or 'pc' but got {residual!r}")
        return _appended(self, moment, energy, power=power, residual=residual)

    def complement(self) -> Subspace:
        """Return the orthogonal complement, head by head.

        The smaller of the two bases determines both (DualGPM; Liang & Li, CVPR 2023).

        >>> axis = Subspace(basis=torch.tensor([[[1.0], [0.0]]]), ranks=(1,))
        >>> axis.complement().basis.abs()
        tensor([[[0.],
                 [1.]]], dtype=torch.float64)
        """
        others = []
        for columns in _columns_of_heads(self.basis.double(), self.ranks):
            # the other columns of a complete QR are orthogonal to the span of the first ones
            complete = torch.linalg.qr(columns, mode="complete").Q
            others.append(complete[:, columns.shape[1] :])
        return _pack(others)

    def parts(self, count: int) -> tuple[Subspace, ...]:
        """Split the direct sum into ``count`` spaces of equally many heads (reverses :meth:`side_by_side`).

        Raises:
            ValueError: ``count`` does not divide the heads.
        """
        if count < 1 or self.heads % count:
            raise ValueError(f"expected a count that divides {self.heads} heads but got {count!r}")
        heads = self.heads // count
        parts = []
        for start in range(0, self.heads, heads):
            ranks = self.ranks[start : start + heads]
            basis = self.basis[start : start + heads, :, : max(ranks)]
            parts.append(Subspace(basis=basis, ranks=ranks))
        return tuple(parts)

    def captured(self, moment: SecondMoment) -> float:
        """Return the share of energy inside the subspace, ``sum_h tr(B_h^T C_h B_h) / tr C``, in [0, 1].

        It is 0 for a moment without energy.

        Raises:
            ValueError: The moment differs in width or heads.
        """
        return captured_shares([(self, moment)])[0] or 0.0

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Subspace:
        """Return a copy with the basis in another dtype or on another device."""
        return attrs.evolve(self, basis=self.basis.to(dtype=dtype, device=device))

    def state(self) -> dict[str, Tensor]:
        """Return basis and ranks (int64) as tensors that safetensors can store."""
        return {"basis": self.basis.contiguous(), "ranks": torch.tensor(self.ranks, dtype=torch.int64)}


def union(*spaces: Subspace) -> Subspace:
    """Return the smallest subspace that contains all ``spaces``, per head if all have the same heads.

    Spaces with different heads are united in the joint form (heads=1). Two directions closer than the square
    root of the coarsest basis's rounding unit (1.5e-8 rad in float64) count as one.

    Raises:
        ValueError: No space is given, or their widths differ.
    """
    widths = [space.dim for space in spaces]
    if len(set(widths)) != 1:
        raise ValueError(f"expected spaces of one width but got {widths}")
    have_same_heads = len({space.heads for space in spaces}) == 1
    device = spaces[0].basis.device
    columns = []
    coarsest = 0.0
    for space in spaces:
        basis = space.basis if have_same_heads else _joint_columns(space)
        columns.append(basis.to(device=device, dtype=torch.float64))
        coarsest = max(coarsest, torch.finfo(space.basis.dtype).eps)
    # the root, because a basis that was rounded is off by its unit: what two of them share would count twice
    return _span(torch.cat(columns, dim=-1), coarsest**0.5)


def image(matrix: Tensor, space: Subspace) -> Subspace:
    """Return the image of ``space`` under ``matrix`` D [r, dim]: the span of ``D B``, in joint form.

    It is the space of a derived activation z = D x if x lies in ``space``. Singular values of D B up to
    ``max(r, dim)`` times the rounding unit of D's dtype, relative to the largest, count as zero.

    >>> plane = Subspace(basis=torch.eye(3)[None, :, :2], ranks=(2,))
    >>> image(torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 5.0]]), plane).rank
    1

    Raises:
        ValueError: The matrix is not floating point or not [r, dim].
    """
    if matrix.ndim != 2 or matrix.shape[1] != space.dim or not matrix.is_floating_point():
        got = f"{matrix.dtype} {tuple(matrix.shape)}"
        raise ValueError(f"expected a floating point matrix [r, {space.dim}] but got {got}")
    double = matrix.detach().to(torch.float64)
    columns = double @ _joint_columns(space).to(double)  # [1, r, rank]
    return _span(columns, max(matrix.shape) * torch.finfo(matrix.dtype).eps)


def captured_shares(pairs: Sequence[tuple[Subspace, SecondMoment]]) -> list[float | None]:
    """Return the share of energy inside each space (:meth:`Subspace.captured`); None for zero energy.

    It waits for a device once for all pairs.

    Raises:
        ValueError: A moment differs from its space in width or heads.
    """
    if not pairs:
        return []
    energies = []
    for space, moment in pairs:
        _check_fits(space, moment)
        basis = space.basis.to(moment.matrix)
        inside = (basis * (moment.matrix @ basis)).sum()  # tr(B^T C B) without its other entries
        energies.append(torch.stack([inside, traces(moment.matrix).sum()]))
    shares: list[float | None] = []
    for inside, total in torch.stack(energies).tolist():
        if total > 0:
            shares.append(min(1.0, max(0.0, inside / total)))  # rounding may carry it outside
        else:
            shares.append(None)
    return shares


def _check_fits(space: Subspace, moment: SecondMoment) -> None:
    if (space.dim, space.heads) != (moment.dim, moment.heads):
        expected = f"{space.dim} in {space.heads}"
        got = f"{moment.dim} in {moment.heads}"
        raise ValueError(f"expected a second moment of dim {expected} heads but got {got}")


@torch.no_grad()
def _appended(
    space: Subspace, moment: SecondMoment, energy: float, *, power: int, residual: Residual, short: int = 0
) -> Subspace:
    """Append the directions of :meth:`Subspace.extend` to ``space``, ``short`` fewer per head."""
    _check_fits(space, moment)
    if not 0 < energy <= 1:  # NaN is not, either
        raise ValueError(f"expected an energy in (0, 1] but got {energy!r}")
    if power not in (2, 4):
        raise ValueError(f"expected power 2 or 4 but got {power!r}")
    basis = space.basis.to(moment.matrix)
    shares = _energy_shares(moment)
    half_off = shares - basis @ (basis.mT @ shares)
    if residual == "pc":
        vectors, values, _ = torch.linalg.svd(half_off)  # not eigh of P C^2 P: its roots would be noise
    else:
        whole_off = half_off - (half_off @ basis) @ basis.mT
        ascending = torch.linalg.eigh((whole_off + whole_off.mT) / 2)  # symmetric but for rounding
        values = ascending.eigenvalues.flip(-1)
        vectors = ascending.eigenvectors.flip(-1)
    if power == 2:
        totals = traces(shares)
    else:  # the sum of the squares of eigenvalues
        totals = shares.square().sum(dim=(1, 2))
    # Counted on the CPU: the host needs the counts, and CUDA's cumulative sum is not deterministic.
    counts = (_needed_counts(values.cpu(), totals.cpu(), energy, power) - short).clamp(min=0)
    room = shares.shape[1] - torch.tensor(space.ranks)
    appended = list(map(int, torch.minimum(counts, room).tolist()))
    fresh = _orthonormal_off(basis, vectors, appended)
    old_columns = _columns_of_heads(basis, space.ranks)
    new_columns = _columns_of_heads(fresh, appended)
    columns = []
    for old, new in zip(old_columns, new_columns, strict=True):
        columns.append(torch.cat([old, new], dim=1))
    return _pack(columns)


def _energy_shares(moment: SecondMoment) -> Tensor:
    """Divide each block by its trace, so that squares neither overflow nor vanish; zero blocks stay zero."""
    if not bool(torch.isfinite(moment.matrix).all()):
        raise ValueError("expected a finite second moment but got values that are infinite or not a number")
    totals = traces(moment.matrix)
    return moment.matrix / torch.where(totals > 0, totals, 1.0)[:, None, None]


def _needed_counts(values: Tensor, totals: Tensor, energy: float, power: int) -> Tensor:
    """Count the needed directions, given descending residual values [heads, width] of blocks of trace 1."""
    width = values.shape[1]
    # Gram matrix, projection and solver each err by a few rounding units of the trace, well below 32 width.
    kept = torch.where(values > 32 * width * _EPS, values, 0.0) ** (power // 2)
    left_over = kept.flip(-1).cumsum(dim=1)  # entry j: the energy of the j + 1 smallest values
    allowed = (1 - energy + width * _EPS) * totals  # ties must not depend on the order of the rows
    return (left_over > allowed[:, None]).sum(dim=1)


def _orthonormal_off(basis: Tensor, vectors: Tensor, counts: Sequence[int]) -> Tensor:
    """Orthonormalise the first ``counts[h]`` of ``vectors`` [heads, width, width] off ``basis``."""
    largest = max(counts)
    filled = (
        torch.arange(largest, device=vectors.device) < torch.tensor(counts, device=vectors.device)[:, None]
    )
    fresh = vectors[:, :, :largest] * filled[:, None, :]
    # An eigenvector of energy e contains rounding / e of the old columns: one pass removes it.
    fresh = fresh - basis @ (basis.mT @ fresh)
    orthonormal: Tensor = torch.linalg.qr(fresh).Q  # trailing zero columns do not affect the leading ones
    return orthonormal


def _joint_columns(space: Subspace) -> Tensor:
    """Return the true columns of all heads as one block-diagonal matrix [1, dim, rank]."""
    joint = space.basis.new_zeros(1, space.dim, space.rank)
    width = space.basis.shape[1]
    first_row = 0
    first_column = 0
    for block in _columns_of_heads(space.basis, space.ranks):
        end = first_column + block.shape[1]
        joint[0, first_row : first_row + width, first_column:end] = block
        first_row += width
        first_column = end
    return joint


def _columns_of_heads(basis: Tensor, ranks: Sequence[int]) -> list[Tensor]:
    """Return the true columns [width, rank] of each head, without the padding."""
    return [columns[:, :rank] for columns, rank in zip(basis, ranks, strict=True)]


def _span(columns: Tensor, tolerance: float) -> Subspace:
    """Return the span of columns [heads, width, k] by singular values over ``tolerance`` of the largest."""
    heads, width, count = columns.shape
    if count == 0:
        return Subspace.empty(heads * width, heads, columns.device)
    left, values, _ = torch.linalg.svd(columns, full_matrices=False)
    ranks = (values > tolerance * values[:, :1]).sum(dim=1).tolist()
    return _pack(_columns_of_heads(left, ranks))


def _pack(columns: Sequence[Tensor]) -> Subspace:
    """Pad orthonormal columns [width, k_h] of each head to one tensor."""
    ranks = tuple(basis.shape[1] for basis in columns)
    largest = max(ranks)
    padded = [torch.nn.functional.pad(basis, (0, largest - basis.shape[1])) for basis in columns]
    return Subspace(basis=torch.stack(padded), ranks=ranks)
