"""What a finished task leaves in the memory: whose sites and whose activations, by scope and by choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lw2g.interfaces.scope import EACH, POOL, SET, SET_SHARED, Scope
from lw2g.learning.evidence.evidence_sample import tap_heads
from lw2g.learning.evidence.spaces import absorb_task
from lw2g.learning.session import Session
from lw2g.maths.moments import SecondMoment

SCOPES = {"s-prompt-plus-plus": SET, "dual-prompt": SET_SHARED, "ease": EACH, "coda-prompt": POOL}


@pytest.mark.parametrize("protect", ["assigned", "visible"])
@pytest.mark.parametrize(("baseline", "scope"), SCOPES.items(), ids=SCOPES)
def test_a_task_extends_the_spaces_of_sets_that_it_meets(
    baseline: str, scope: Scope, protect: str, session_of: Callable[..., Session]
) -> None:
    """Of its own set, or of each live one; where each set answers, activations are those under itself."""
    chosen = {"growth.protect": protect, "backbone.spread": 0.1, "growth.images": 16}
    session = session_of(chosen, baseline=baseline, policy="min")
    assert session.parts.baseline.scope is scope
    kept: list[tuple[int | None, str, SecondMoment]] = []
    absorb = session.parts.memory.absorb

    def watched(owner: int | None, site: Any, moment: SecondMoment) -> None:
        kept.append((owner, site.name, moment))
        absorb(owner, site, moment)

    session.parts.memory.absorb = watched  # type: ignore[method-assign]
    pool, own = session.parts.pool, session.parts.baseline
    for index, reused in enumerate((None, None, 0)):
        session.parts.begin_task(index)
        torch.manual_seed(index)
        set_id = pool.grow(session.parts.new_set(None)) if reused is None else pool.reuse(reused)
        with torch.no_grad():
            for parameter in pool[set_id].parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        images = session.data.image_set([session.data.stream.tasks[index].train], train=False)
        evidence_sample = session.parts.evidence_sample(index, images)
        kept.clear()
        absorb_task(session.parts, session.task_context(index, images, evidence_sample), evidence_sample)
        owners = [set_id] if protect == "assigned" else list(pool.ids)
        expected = [(owner, site) for owner in owners for site in own.sites(pool[owner])]
        expected += [(None, site) for site in own.shared_sites()]
        assert sorted(str(one[:2]) for one in kept) == sorted(str((o, s.name)) for o, s in expected)
        found = {one[:2]: one[2] for one in kept}
        (batch,) = [batch for batch, _ in evidence_sample.batches()]

        def seen_under(reader: int, site: Any, batch: Any = batch) -> torch.Tensor:
            tap = site.activation.tap
            with torch.no_grad():
                rows = session.parts.backbone.read([tap], lambda: own.features(batch, pool.force(reader)))[
                    tap
                ]
            moment = SecondMoment(
                rows.shape[-1], tap_heads(tap, session.parts.backbone, session.parts.config.growth)
            )
            moment.update(rows)
            return moment.matrix

        for owner, site in expected:
            reader = owner if scope is EACH and owner is not None else set_id
            torch.testing.assert_close(found[owner, site.name].matrix, seen_under(reader, site))
        # sets differ, or it would not matter under which of them activations are read
        if scope in (SET, SET_SHARED, EACH) and len(pool) > 1:
            deepest = own.sites(pool[0])[-1]
            assert not torch.allclose(seen_under(0, deepest), seen_under(1, deepest))
