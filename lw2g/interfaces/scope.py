"""Scopes: what the features of an image depend on besides the image, and so which sets answer for it.

A baseline declares one of five scopes. The framework calls its methods and never checks which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from torch import Tensor, nn

from lw2g.interfaces.pool import BESIDE, UNCHOSEN, Pool, Routing

__all__ = ["BACKBONE", "EACH", "POOL", "SET", "SET_SHARED", "Scope"]


@attrs.frozen(kw_only=True)
class Scope:
    """What the features of an image depend on besides the image.

    Attributes:
        name: The name in messages.
        learned: Whether they depend on learned parameters.
        choice: Whether they depend on one chosen set and on no other set. If none is chosen, they are
            computed with the sets as they are.
        shared: Whether learning any task changes the features of all images.
        each: Whether each set in turn computes features of each image, which the baseline's logits combine.
    """

    name: str
    learned: bool = True
    choice: bool = True
    shared: bool = False
    each: bool = False

    def __str__(self) -> str:
        return self.name

    # -- which sets a forward gets -----------------------------------------------------------------------

    def members(self, pool: Pool, beside: Sequence[nn.Module]) -> tuple[int, ...]:
        """Return the ids under which every image gets features if no task is retrieved.

        With the scope ``EACH`` they are those of the live sets and then of the modules in ``beside``, which
        are ``BESIDE`` and the numbers below it; with any other scope ``UNCHOSEN`` alone.

        Args:
            pool: The live sets.
            beside: What ``Baseline.beside`` returns: modules that compute features like a set.
        """
        if not self.each:
            return (UNCHOSEN,)
        return (*pool.ids, *(BESIDE - number for number in range(len(beside))))

    def route(self, pool: Pool, ids: Tensor | None, beside: Sequence[nn.Module] = ()) -> Routing:
        """Return the routing that gives each image its set.

        Where features depend on no set but the chosen one, the routing leaves out sets that no image gets,
        because gathering them takes time.

        Args:
            pool: The live sets.
            ids: The set of each image, ``[B]``; None for the sets as they are.
            beside: What ``Baseline.beside`` returns.
        """
        return pool.route(ids, alone=self.choice or not self.learned, beside=beside)

    def force(self, pool: Pool, set_id: int) -> Routing:
        """Return the routing for features under one set."""
        return pool.force(set_id) if self.choice else pool.route(None)

    def passes(self, candidates: Sequence[int]) -> list[list[int]]:
        """Return the groups of candidate sets that share a forward: one group each, or one for all."""
        if self.choice:
            return [[candidate] for candidate in candidates]
        return [list(candidates)] if candidates else []

    def forwards(self, sets: int, beside: int) -> int:
        """Return the number of forwards per image for some live sets and modules of ``Baseline.beside``."""
        return sets + beside if self.each else 1

    # -- how long features stay valid --------------------------------------------------------------------

    def source(self, set_id: int) -> int:
        """Return the id under which features are cached: the set, or 0 if nothing learned takes part."""
        return set_id if self.learned else 0

    def version(self, set_id: int, tasks: int, of_set: Callable[[int], int]) -> int:
        """Return a number that changes whenever features under a set may have changed.

        Args:
            set_id: An id that :meth:`members` may return.
            tasks: Number of tasks learned so far.
            of_set: Returns the version of an id.
        """
        if not self.learned:
            return 0
        return tasks if self.shared else of_set(set_id)

    def moves(self, trained: int, own: int) -> bool:
        """Return whether training the set ``trained`` makes features under the set ``own`` drift."""
        return self.learned and (self.shared or trained == own)

    # -- what belongs to a set ---------------------------------------------------------------------------

    def made_under(self, set_id: int) -> int:
        """Return the set that statistics of features under a set belong to; 0 if no set is chosen."""
        return set_id if self.choice else 0

    def before(self, pool: Pool, set_id: int, new: int | None) -> Routing:
        """Return the routing for features under a set before the set ``new`` (None: no set) was added."""
        if self.choice:
            return pool.force(set_id)
        # features without a choice depend on all sets, so the new one must not be there yet
        return Routing(sets=tuple(pool[old] for old in pool.ids if old != new), chosen=0)

    def reader(self, owner: int, current: int) -> int:
        """Return the set under which a site's activations on the images of a task are measured.

        Args:
            owner: The set that the site belongs to.
            current: The set of the task.
        """
        return owner if self.each else current

    # -- one answer --------------------------------------------------------------------------------------

    def repeated(self, features: Tensor, members: int) -> Tensor:
        """Return features ``[B, F]`` as logits take them, the same ones under each of the members.

        With the scope ``EACH`` ``[B, members, F]``.
        """
        return features[:, None].expand(-1, members, -1) if self.each else features

    def score(self, logits: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
        """Return logits for features ``[B, K, F]`` of the K :meth:`members`."""
        return logits(features if self.each else features[:, 0])


BACKBONE = Scope(name="backbone", learned=False, choice=False)
"""Features depend on nothing learned."""
SET = Scope(name="set")
"""Features depend on the chosen set alone, or on the sets as they are if none is chosen."""
SET_SHARED = Scope(name="set+shared", shared=True)
"""Features depend on the chosen set and on parameters that all tasks share."""
EACH = Scope(name="each", each=True)
"""Each set in turn computes features, and the baseline's logits combine them."""
POOL = Scope(name="pool", choice=False, shared=True)
"""Features depend on all sets at once: one backward gives the gradients at all of them."""
