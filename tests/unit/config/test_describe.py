"""Options describe themselves: type, default, range, help and published value."""

from __future__ import annotations

from typing import Literal

import attrs
import pytest
from attrs import validators

from lw2g.config.describe import describe_options, describe_range
from lw2g.config.settings import GrowthConfig, RunConfig
from lw2g.interfaces.options import option


def _even(instance, attribute, value):
    """Even."""


@pytest.mark.parametrize(
    ("validator", "words"),
    [
        (None, ""),
        (validators.ge(1), ">= 1"),
        (validators.and_(validators.gt(0), validators.lt(1)), "> 0 and < 1"),
        (validators.optional([validators.gt(0), validators.le(1)]), "> 0 and <= 1"),
        (validators.in_(("a", "b")), "one of 'a', 'b'"),
        (validators.deep_iterable(validators.ge(0)), "each >= 0"),
        (validators.min_len(1), "at least 1 long"),
        (validators.matches_re("a+"), "matching a+"),
        (_even, "even"),
        (lambda *_: None, ""),
    ],
)
def test_ranges_are_read_off_validators(validator, words):
    """A listing shows the bounds that are really checked."""
    assert describe_range(validator) == words


def test_an_option_tells_everything_it_declares():
    """One line of a listing holds all that the declaration says."""

    @attrs.frozen(kw_only=True)
    class Options:
        rate: float | None = option(
            None, "the rate", validator=validators.optional(validators.gt(0)), published=0.5
        )
        rule: Literal["a", "b"] = "a"

    rate, rule = describe_options(Options)
    assert attrs.asdict(rate) == {
        "name": "rate",
        "type": "float or 'none'",
        "default": "none",
        "range": "> 0",
        "help": "the rate",
        "published": 0.5,
        "choices": ("none",),
        "component": "",
    }
    assert (rule.type, rule.default, rule.range, rule.published) == ("one of 'a', 'b'", "a", "", None)
    assert rule.choices == ("a", "b")


@pytest.mark.parametrize("config", [GrowthConfig, RunConfig])
def test_every_option_of_the_core_has_a_help_line(config):
    """Nothing is left unexplained in listings."""
    assert [described.name for described in describe_options(config) if not described.help] == []
