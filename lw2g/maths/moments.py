"""Second moments of activations, from which subspaces are built.

The uncentred second moment ``C = sum x x^T`` is a running sum, so memory is O(d^2) for any number of tokens.
The left singular vectors of the data matrix are the eigenvectors of C, and its squared singular values are
the eigenvalues of C.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["SecondMoment", "head_width", "split_heads", "traces"]


class SecondMoment:
    """Running second moment ``C = sum x x^T`` of activation rows, one block per head, in float64.

    ``matrix`` is [heads, dim / heads, dim / heads], ``row_sum`` [heads, dim / heads] and ``count`` the
    number of rows. A row is head-major: head h owns columns ``h * dim / heads`` up to the next head's.

    >>> moment = SecondMoment(2)
    >>> moment.update(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> moment.trace(), moment.count
    (25.0, 2)
    """

    def __init__(self, dim: int, heads: int = 1, device: torch.device | str | None = None) -> None:
        """Start without rows; ``dim`` is the width of a row, a multiple of ``heads``.

        Raises:
            ValueError: ``heads`` does not divide ``dim``, or one of them is not positive.
        """
        width = head_width(dim, heads)
        self.matrix = torch.zeros(heads, width, width, dtype=torch.float64, device=device)
        self.row_sum = torch.zeros(heads, width, dtype=torch.float64, device=device)
        self.count = 0

    @staticmethod
    def side_by_side(moments: Sequence[SecondMoment]) -> SecondMoment:
        """Return several moments of one width as the heads of one, for a single call of a batched solver.

        >>> SecondMoment.side_by_side([SecondMoment(4, 2), SecondMoment(4, 2)]).matrix.shape
        torch.Size([4, 2, 2])

        Raises:
            ValueError: No moment is given, or the widths of their heads differ.
        """
        widths = {moment.matrix.shape[1] for moment in moments}
        if len(widths) != 1:
            raise ValueError(f"expected moments whose heads have one width but got {sorted(widths)}")
        matrices = torch.cat([moment.matrix for moment in moments])
        result = SecondMoment(matrices.shape[0] * matrices.shape[1], matrices.shape[0], matrices.device)
        result.matrix = matrices
        result.row_sum = torch.cat([moment.row_sum for moment in moments])
        result.count = sum(moment.count for moment in moments)
        return result

    @staticmethod
    def subsets(moments: Sequence[SecondMoment], members: Tensor) -> list[SecondMoment]:
        """Return the second moments of several unions of disjoint samples, in one product.

        Args:
            moments: One per sample, of one width and heads.
            members: Which samples belong to a union, ``[unions, samples]`` float64, 0 or 1.

        >>> a, b = SecondMoment(1), SecondMoment(1)
        >>> a.update(torch.tensor([[3.0]])), b.update(torch.tensor([[4.0]]))
        (None, None)
        >>> members = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
        >>> [union.trace() for union in SecondMoment.subsets([a, b], members)]
        [25.0, 16.0]
        """
        first = moments[0]
        members = members.to(first.matrix.device)
        matrices = []
        row_sums = []
        counts = []
        for moment in moments:
            matrices.append(moment.matrix)
            row_sums.append(moment.row_sum)
            counts.append(moment.count)
        summed_matrices = torch.tensordot(members, torch.stack(matrices), dims=1)
        summed_rows = torch.tensordot(members, torch.stack(row_sums), dims=1)
        # exact in float64: no sample has 2^53 rows
        summed_counts = (members.cpu() @ torch.tensor(counts).double()).tolist()
        unions = []
        for matrix, row_sum, count in zip(summed_matrices, summed_rows, summed_counts, strict=True):
            union = SecondMoment(first.dim, first.heads, first.matrix.device)
            union.matrix = matrix
            union.row_sum = row_sum
            union.count = int(count)
            unions.append(union)
        return unions

    @property
    def heads(self) -> int:
        """Number of heads; each has its own block."""
        return self.matrix.shape[0]

    @property
    def dim(self) -> int:
        """Width of a whole row: heads times the width of one head."""
        return self.matrix.shape[0] * self.matrix.shape[1]

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """Add ``rows`` [..., dim]; products are taken in float64 on the device of the rows.

        Raises:
            ValueError: The rows are not floating point or not ``dim`` wide.
        """
        split = split_heads(rows, self.dim, self.heads).to(torch.float64)  # [heads, n, width]
        self.matrix += (split.mT @ split).to(self.matrix.device)
        self.row_sum += split.sum(dim=1).to(self.row_sum.device)
        self.count += split.shape[1]

    def merge(self, other: SecondMoment) -> SecondMoment:
        """Return the moment of the rows of both.

        Raises:
            ValueError: The two moments differ in width or heads.
        """
        if (other.dim, other.heads) != (self.dim, self.heads):
            expected = f"{self.dim} in {self.heads}"
            got = f"{other.dim} in {other.heads}"
            raise ValueError(f"expected a second moment of dim {expected} heads but got {got}")
        result = SecondMoment(self.dim, self.heads, self.matrix.device)
        result.matrix = self.matrix + other.matrix.to(self.matrix.device)
        result.row_sum = self.row_sum + other.row_sum.to(self.row_sum.device)
        result.count = self.count + other.count
        return result

    def centred(self) -> SecondMoment:
        """Return the moment of the rows about their mean: ``C - s s^T / n`` with the row sum s.

        For evidence only: a space that protects logits must contain the mean direction.
        """
        result = SecondMoment(self.dim, self.heads, self.matrix.device)
        result.count = self.count
        outer = self.row_sum.unsqueeze(-1) * self.row_sum.unsqueeze(-2)
        result.matrix = self.matrix - outer / max(self.count, 1)
        return result

    def image(self, matrix: Tensor) -> SecondMoment:
        """Return the moment of the rows ``z = D x`` for a matrix D [r, dim]: ``D C D^T``, in joint form.

        For joint moments :meth:`side_by_side` it returns their images side by side.

        Raises:
            ValueError: The matrix is not as wide as one block.
        """
        heads, width, _ = self.matrix.shape
        if matrix.ndim != 2 or matrix.shape[1] != width:
            got = f"{tuple(matrix.shape)} for a moment of {self.heads} heads"
            raise ValueError(f"expected a matrix [r, {self.dim}] and a joint moment but got {got}")
        result = SecondMoment(heads * matrix.shape[0], heads, self.matrix.device)
        double = matrix.detach().to(self.matrix)
        result.matrix = double @ self.matrix @ double.T
        result.row_sum = self.row_sum @ double.T
        result.count = self.count
        return result

    def trace(self) -> float:
        """Return the total energy: the sum of squared entries of all rows."""
        return max(0.0, float(traces(self.matrix).sum()))  # centred moments may round to below 0


def head_width(dim: int, heads: int) -> int:
    """Return the width of one of ``heads`` heads of a row that is ``dim`` wide.

    Raises:
        ValueError: ``heads`` does not divide ``dim``, or one of them is not positive.
    """
    if heads < 1 or dim < 1 or dim % heads:
        raise ValueError(f"expected heads that divide dim but got dim {dim!r} and heads {heads!r}")
    return dim // heads


def split_heads(rows: Tensor, dim: int, heads: int) -> Tensor:
    """View rows [..., dim] as [heads, n, dim / heads]."""
    if rows.ndim == 0 or rows.shape[-1] != dim or not rows.is_floating_point():
        got = f"{rows.dtype} {tuple(rows.shape)}"
        raise ValueError(f"expected floating point rows [..., {dim}] but got {got}")
    return rows.reshape(-1, heads, dim // heads).transpose(0, 1)


def traces(matrix: Tensor) -> Tensor:
    """Return the trace of each block of ``matrix`` [heads, width, width], ``[heads]``."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
