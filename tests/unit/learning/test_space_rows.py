"""Which activations span a space: taps, tokens, images and centring, and what is refused of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from lw2g.config.settings import GrowthConfig
from lw2g.errors import ConfigError
from lw2g.interfaces.growth import counts_directions
from lw2g.learning.evidence.collecting import collect_evidence
from lw2g.learning.evidence.evidence_sample import EvidenceSample, merged
from lw2g.learning.evidence.space_rows import Rows, require_rows
from lw2g.learning.evidence.spaces import absorb_task
from lw2g.learning.session import Session
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g.vit.backbone import Backbone
from lw2g.vit.taps import Tap

BLOCKS = {"baseline.blocks": [0, 1], "growth.images": 16, "growth.draws": 2, "growth.evidence": "literal"}


def learned_one(session: Session) -> EvidenceSample:
    """Give the first task an untrained set and its space, and return the second one's evidence sample."""
    session.parts.begin_task(0)
    torch.manual_seed(0)
    session.parts.pool.grow(session.parts.new_set(None))
    samples = []
    for index in (0, 1):
        images = session.data.image_set([session.data.stream.tasks[index].train], train=False)
        samples.append(session.parts.evidence_sample(index, images))
        if not index:
            absorb_task(session.parts, session.task_context(0, images, samples[0]), samples[0])
    session.parts.begin_task(1)
    return samples[1]


def spaces_of(session: Session) -> dict[str, Any]:
    """Return the old spaces of the first set by site."""
    parts = session.parts
    return {site.name: parts.memory.space(0, site) for site in parts.baseline.sites(parts.pool[0])}


@pytest.mark.parametrize(
    ("tap", "kind", "shift"), [("block-input", "block_in", 0), ("block-output", "block_in", 1)]
)
def test_a_tap_reads_what_it_names(
    session_of: Callable[..., Session], tap: str, kind: Any, shift: int
) -> None:
    """The output of a block is the input of the next one, and both are read for the site of the block."""
    chosen = BLOCKS | {"growth.tap": tap, "backbone.depth": 3}
    session = session_of(chosen, baseline="s-prompt-plus-plus")
    sample = learned_one(session)
    own = [site.activation.tap for site in session.parts.baseline.sites(session.parts.pool[0])]
    found = sample.moments(own)
    for place in own:
        expected = SecondMoment(session.parts.backbone.dim)
        where = Tap(place.block + shift, kind)
        for batch, _ in sample.batches():
            expected.update(session.parts.backbone.activations(batch.images, [where])[where])
        total = sum(part.matrix for part in found[place])
        torch.testing.assert_close(total, expected.matrix)


@pytest.mark.parametrize(("tokens", "rows"), [("one", 1), ("class", 1), ("mean", 1), ("all", 17)])
def test_tokens_say_how_many_rows_an_image_has(tokens: str, rows: int) -> None:
    """One of all tokens, the first one, their mean, or all of them."""
    seen = torch.arange(3 * 17 * 2).reshape(3, 17, 2).float()
    places = torch.tensor([4, 0, 16])
    chosen = Rows(tokens=tokens).chosen(seen, places)
    expected = {
        "one": seen[torch.arange(3), places],
        "class": seen[:, 0],
        "mean": seen.mean(dim=1),
        "all": seen.reshape(-1, 2),
    }
    assert torch.equal(chosen.reshape(-1, 2), expected[tokens])
    assert chosen.shape[1] == rows


def test_few_rows_make_a_small_space_and_z_follows_from_it(session_of: Callable[..., Session]) -> None:
    """One token of four images spans four directions: Z falls far below 0, as random spaces have it."""
    few = {"growth.tap": "block-input", "growth.tokens": "one", "growth.tokens_pre": "all"}
    few["growth.space_images"] = 4  # type: ignore[assignment]
    session = session_of(BLOCKS | few, baseline="s-prompt-plus-plus", policy="min")
    sample = learned_one(session)
    assert {space.rank <= 4 for space in spaces_of(session).values()} == {True}
    (candidate,) = collect_evidence(session.parts, sample).candidates
    measured = candidate.measures["hindrance"]
    assert measured.value is not None
    assert measured.null is not None
    assert measured.value < -10
    entry = {"decision": "reuse", "set": 0, "limits": {"hindrance": {"0": 0.0}}}
    assert counts_directions(entry | {"candidates": [candidate.as_mapping()]})


@pytest.mark.parametrize("centred", [False, True])
def test_a_space_is_centred_where_that_is_asked_for(
    session_of: Callable[..., Session], centred: bool
) -> None:
    """The space of a finished task is that of the rows about their mean, or about zero."""
    chosen = BLOCKS | {"growth.tap": "block-input", "growth.energy": 0.9, "growth.centre_old": centred}
    session = session_of(chosen, baseline="s-prompt-plus-plus")
    learned_one(session)
    images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    # prefixes do not reach the input of the first block: the plain backbone reads the same there
    site = session.parts.baseline.sites(session.parts.pool[0])[0]
    tap = site.activation.tap
    moment = merged(session.parts.evidence_sample(0, images).moments([tap])[tap])
    spaces = [Subspace.build(one, 0.9) for one in (moment, moment.centred())]
    assert spaces[0].rank != spaces[1].rank
    probe = torch.randn(5, moment.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(spaces_of(session)[site.name].on(probe), spaces[centred].on(probe))


def test_a_drawn_token_is_the_same_whenever_it_is_read(session_of: Callable[..., Session]) -> None:
    """Tokens come from the seed, the task and their purpose: two samples of a task have the same rows."""
    session = session_of(BLOCKS | {"growth.tokens": "one"}, baseline="s-prompt-plus-plus")
    learned_one(session)
    images = session.data.image_set([session.data.stream.tasks[1].train], train=False)
    tap = session.parts.baseline.sites(session.parts.pool[0])[0].activation.tap
    one, two = (session.parts.evidence_sample(1, images).moments([tap])[tap] for _ in range(2))
    assert all(torch.equal(first.matrix, second.matrix) for first, second in zip(one, two, strict=True))


def test_empty_options_of_the_pretrained_space_are_those_of_the_old_one() -> None:
    """Rows of the un-prompted backbone follow those of finished tasks, unless they have their own."""
    options = GrowthConfig(tap="block-input", tokens="one")
    assert Rows.of_pretrained(options) == Rows.of_finished(options)
    own = attrs.evolve(options, tap_pre="last-queries", tokens_pre="all")
    assert Rows.of_pretrained(own) == Rows(tap="last-queries", tokens="all")


def test_a_class_token_that_is_not_there_is_refused() -> None:
    """A backbone that pools its tokens has none to take as the row of an image."""
    model = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=8, depth=1, num_heads=2, num_classes=0, global_pool="avg"
    )
    backbone = Backbone.wrap(model, name="pools")
    options = GrowthConfig(tokens_pre="class")
    with pytest.raises(ConfigError, match=r"growth\.tokens_pre=class is a class token"):
        require_rows(options, backbone, [100])
    require_rows(attrs.evolve(options, tokens_pre="mean"), backbone, [100])


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"growth.images": 16, "growth.space_images": 17}, "17 of the 16 images of growth.images"),
        ({"growth.images": 4096, "growth.space_images": 4000}, "4000 images, and task 1 has"),
    ],
)
def test_images_that_a_task_does_not_have_are_refused(
    session_of: Callable[..., Session], chosen: dict[str, int], said: str
) -> None:
    """Before anything is learned, in one line that names the most there is."""
    with pytest.raises(ConfigError, match=said):
        session_of(chosen, baseline="s-prompt-plus-plus", policy="min")
