"""Prompt gradient projection (Qiao et al., ICLR 2024): one space per site for the whole run.

Where the orthogonal condition protects a set's own tasks when the set is reused, this rule protects all old
tasks in whatever set is trained, a fresh one too. It changes neither growth nor retrieval.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from lw2g.plugin import (
    BuildContext,
    Constraint,
    Restriction,
    SecondMoment,
    Site,
    SpaceOptions,
    Subspace,
    TaskContext,
)
from lw2g_constraints.options import PgpConfig

__all__ = ["PromptGradientProjection"]


class PromptGradientProjection(Constraint):
    """Hard rule at every site from the second task on, with spaces of its own by site name.

    Spaces hold the tapped activation. Where rows are themselves tokens of the stream (L2P), attention
    multiplies them with one another, too, so the space holds the finished task's rows beside its activations;
    the release takes the span of their element-wise sum, which need not hold either.

    For a mapped activation (LoRA's ``z = D x``) the image is taken with the set being trained. In a fresh set
    such a site is left free: its factor starts at zero, and a full image would keep it there.
    """

    hard = True
    needs_memory = False
    absorbs = True

    def __init__(self, config: PgpConfig, context: BuildContext) -> None:
        """Build spaces as the options say, and restore them on the run's device."""
        self.on = config.on
        self._options = SpaceOptions(energy=config.energy, power=config.power, rule=config.rule)
        self._device = context.device
        self._spaces: dict[str, Subspace] = {}

    def restriction(self, site: Site, context: TaskContext) -> Restriction | None:
        """Return the run-wide space at the site's position, None before a task was absorbed there."""
        space = self._spaces.get(site.name)
        if space is None:
            return None
        mapped = site.activation.map is not None
        fresh = mapped and site.owner == "set" and context.grew
        if fresh:  # its factor is 0, and the image of a space in few dimensions may be all: it would stay 0
            return None
        return Restriction(subspace=site.activation.image(space))

    def absorb(self, site: Site, moment: SecondMoment, context: TaskContext) -> None:
        """Extend the site's space by the finished task, then by its tokens where the site has tokens."""
        old = self._spaces.get(site.name)
        if old is None:
            space = self._options.build(moment)
        else:
            space = self._options.extend(old, moment)
        if site.activation.tap.kind == "block_in":  # before any norm: only tokens meet the stream there
            # x dp' = 0 keeps the products with old images, p dp' = 0 those among the tokens themselves
            tokens = SecondMoment(moment.dim, moment.heads, moment.matrix.device)
            tokens.update(site.rows(site.parameter.detach()))
            space = self._options.extend(space, tokens)
        self._spaces[site.name] = space

    @property
    def basis_vectors(self) -> int:
        """Number of basis vectors in the run-wide spaces."""
        return sum(space.rank for space in self._spaces.values())

    def state_dict(self) -> dict[str, Tensor]:
        """Return the spaces as ``"<site>|basis"`` and ``"<site>|ranks"``."""
        state = {}
        for name, space in self._spaces.items():
            for part, value in space.state().items():
                state[f"{name}|{part}"] = value
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        by_site: dict[str, dict[str, Tensor]] = {}
        for key, value in state.items():
            name, part = key.rsplit("|", 1)
            by_site.setdefault(name, {})[part] = value
        self._spaces = {}
        for name, parts in by_site.items():
            self._spaces[name] = Subspace.from_state(parts).to(device=self._device)
