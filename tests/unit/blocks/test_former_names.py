"""Building blocks that the reference page of 0.2.0 had as functions: methods made then still import them."""

from __future__ import annotations

import pytest
import torch

from lw2g.blocks.adapters import AdapterSet, as_buffers, down_sites
from lw2g.blocks.prefixes import PrefixSet, check_blocks, prefix_sites
from lw2g.blocks.replay import replay_statistics
from lw2g.blocks.statistics import ClassStatistics, statistics_phase
from lw2g.errors import ConfigError, PluginError
from lw2g.interfaces.component import lazy


def test_sites_and_buffers_are_those_of_the_sets() -> None:
    """A function takes what it took in 0.2.0, and answers as the method that stands in its place."""
    prefixes = PrefixSet(2, 4, 6)
    former = [(site.name, site.owner) for site in prefix_sites(prefixes, (3, 5), "shared")]
    assert former == [("blocks.3.prefix_key", "shared"), ("blocks.5.prefix_key", "shared")]
    adapters = AdapterSet(3, 6, 2)
    names = [site.name for site in down_sites(adapters, 2)]
    assert names == ["blocks.0.adapter_down", "blocks.1.adapter_down"]
    kept = dict(as_buffers(adapters).named_buffers())
    assert torch.equal(kept["down"], adapters.down.detach())
    assert replay_statistics == ClassStatistics.of


def test_blocks_are_checked_against_a_depth() -> None:
    """A block outside the depth is refused, and the others come back as a tuple."""
    assert check_blocks([0, 2], 3, "baseline.blocks") == (0, 2)
    with pytest.raises(ConfigError, match="block 3 is outside the backbone's 3 blocks; use 0 to 2"):
        check_blocks([3], 3, "baseline.blocks")


def test_a_phase_fits_the_statistics_that_it_is_given() -> None:
    """The arguments come in the order of 0.2.0, with the statistics third."""
    statistics = ClassStatistics(2, 3, "covariance", 1)
    phase = statistics_phase("fit", None, statistics, lambda batch: batch.images)  # type: ignore[arg-type]
    assert phase.name == "fit"


def test_a_module_that_has_moved_is_looked_up_in_the_changelog() -> None:
    """What a plugin misses of lw2g is not to be installed."""
    with pytest.raises(PluginError, match=r"No module named 'lw2g.geometry'; lw2g's changelog says where"):
        lazy("lw2g.geometry.comparisons:half_samples")()
    with pytest.raises(PluginError, match="No module named 'absent_package'; install what it needs"):
        lazy("absent_package:name")()
