"""Checks of sites and heads: broken baselines fail the one they break."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch
from torch import nn

from broken_components import Broken, evolving
from lw2g.interfaces.site import Activation
from lw2g.vit.taps import Tap
from lw2g_lora.c_lora import CLora
from lw2g_lora.plugin import C_LORA
from lw2g_prompts.plugin import S_PROMPT_PLUS_PLUS
from lw2g_prompts.s_prompt import SPromptPlusPlus
from lw2g_testing import contract_cases

BROKEN = Broken(evolving(S_PROMPT_PLUS_PLUS, presets={}, tuned={}))
breaks = BROKEN.breaks


class Rows(nn.Module):
    """A linear head that is no ``nn.Linear``."""

    def __init__(self, dim, classes):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(classes, dim) / 50)

    def forward(self, features):
        return features @ self.rows.T


class OtherSites(SPromptPlusPlus):
    """Declares the sites of prompts, altered by a subclass."""

    def altered(self, site, parameters) -> Any:
        raise NotImplementedError

    def sites(self, parameters):
        return [self.altered(site, parameters) for site in super().sites(parameters)]


@breaks("sites_are_what_they_say", "5 sites of set 0 are named 'key'")
class OneName(OtherSites):
    def altered(self, site, parameters):
        return attrs.evolve(site, name="key")


@breaks("sites_are_what_they_say", "not declared for both set 0 and set 1")
class NamesTellTheSet(OtherSites):
    def altered(self, site, parameters):
        return attrs.evolve(site, name=f"{site.name}.{float(parameters.key[0, 0, 0]):.6f}")


@breaks("sites_are_what_they_say", "'blocks.0.prefix_key' of set 0 is no parameter of that set")
class SiteOnACopy(OtherSites):
    def altered(self, site, parameters):
        return attrs.evolve(site, parameter=nn.Parameter(site.parameter.clone()))


@breaks("sites_are_what_they_say", "says owner 'shared'; sites declares those of 'set' alone")
class WrongOwner(OtherSites):
    def altered(self, site, parameters):
        return attrs.evolve(site, owner="shared")


@breaks("sites_are_what_they_say", r"has index \(9,\)")
class WrongIndex(OtherSites):
    def altered(self, site, parameters):
        return attrs.evolve(site, index=(9,))


@breaks(
    "sites_are_what_they_say", "tap 'blocks.17.query' of site 'blocks.0.prefix_key' of set 0 reads nothing"
)
class TapBeyond(OtherSites):
    def altered(self, site, parameters):
        return attrs.evolve(site, activation=Activation(tap=Tap(block=17, kind="query")))


@breaks("sites_are_what_they_say", "compute features through the backbone")
class NoForward(SPromptPlusPlus):
    def features(self, batch, routing):
        return batch.query + routing.select(lambda one: one.key).flatten(-3, -2).sum(-2)


@breaks("taps_read_what_is_multiplied", r"0\.[1-9]\d of .* 'blocks.1.query'.*let sites \(.*:\d+\) name")
class TapOfTheNextBlock(OtherSites):
    def altered(self, site, parameters):
        block = (site.activation.tap.block + 1) % 6
        return attrs.evolve(site, activation=Activation(tap=Tap(block=block, kind="query")))


@breaks("taps_read_what_is_multiplied", r"0\.[1-9]\d of one image's gradient .* tap 'blocks.0.attn_in'")
class TapBeforeTheProjection(OtherSites):
    def altered(self, site, parameters):
        tap = Tap(block=site.activation.tap.block, kind="attn_in")
        return attrs.evolve(site, activation=Activation(tap=tap))


@breaks("sites_are_what_they_say", r"is \[32, 3\], but its activation is 32 wide")
class WrongAxis(SPromptPlusPlus):
    def new_set(self, source):
        made = super().new_set(source)
        made.up = nn.Parameter(torch.zeros(32, 3))
        return made

    def source_of(self, pool):
        return None

    def sites(self, parameters):
        return [attrs.evolve(site, parameter=parameters.up, index=()) for site in super().sites(parameters)]


@breaks("sites_are_what_they_say", "the map of site 'blocks.0.prefix_key' of set 0 cannot be applied")
class WrongMap(OtherSites):
    def altered(self, site, parameters):
        activation = attrs.evolve(site.activation, map=lambda: torch.zeros(1, 7))
        return attrs.evolve(site, activation=activation)


@breaks("probe_reaches_measured_sites", "zero at site 'blocks.5.prefix_key' of set 0; ")
class IdleSite(SPromptPlusPlus):
    def new_set(self, source):
        made = super().new_set(source)
        made.idle = nn.Parameter(torch.zeros(20, 32))
        return made

    def source_of(self, pool):
        return None

    def sites(self, parameters):
        sites = super().sites(parameters)
        more = attrs.evolve(sites[0], name="blocks.5.prefix_key", parameter=parameters.idle, index=())
        return (*sites, more)


@breaks("head_is_drawn_anew", "draw_head leaves probe_loss as it is")
class BareHead(SPromptPlusPlus):
    def __init__(self, config, context):
        super().__init__(config, context)
        del self.head
        self.head = Rows(context.backbone.dim, context.num_classes)


@breaks("head_is_drawn_anew", "changes the logits of old classes")
class DrawsAllRows(SPromptPlusPlus):
    def draw_head(self, task):
        self.head.reset_parameters()


@breaks("evidence_changes_nothing", "changes 'baseline.count'")
class CountsDraws(SPromptPlusPlus):
    def __init__(self, config, context):
        super().__init__(config, context)
        self.register_buffer("count", torch.zeros(()))

    def draw_head(self, task):
        super().draw_head(task)
        self.count += 1


@breaks("sites_are_what_they_say", "is of attention queries.*leave query_sites out", query_sites=False)
class ReadsQueriesAfterAll(SPromptPlusPlus):
    pass


@breaks(
    "learns_a_small_stream",
    r"sites: site 'blocks.0.up_k' is \[32, \d+\], but its activation is 32 wide .*map the activation",
    base=C_LORA,
)
class UnmappedUp(CLora):
    def sites(self, parameters):
        sites = super().sites(parameters)
        return [attrs.evolve(site, activation=Activation(tap=site.activation.tap)) for site in sites]


@breaks(
    "learns_a_small_stream", "site 'blocks.0.prefix_key' is .*, but its activation is 128 wide .*mlp_hidden"
)
class TapOfAnotherWidth(OtherSites):
    def altered(self, site, parameters):
        tap = Tap(block=site.activation.tap.block, kind="mlp_hidden")
        return attrs.evolve(site, activation=Activation(tap=tap))


class Rebound(CLora):
    """Has a map a site that reads the factor of a block and a target."""

    def sites(self, parameters):
        sites = []
        for site in super().sites(parameters):
            if site.activation.map is not None:
                position, place = site.index
                mapped = self.of_site(parameters, position, place)
                site = attrs.evolve(site, activation=attrs.evolve(site.activation, map=mapped))
            sites.append(site)
        return sites

    def of_site(self, parameters, position, place) -> Any:
        raise NotImplementedError


ONE_MAP = "the maps of site 'blocks.0.up_k' of set 0 and .* are one part of 'down'.*map=lambda block=block"


@breaks("sites_are_what_they_say", ONE_MAP, base=C_LORA)
class BindsLate(Rebound):
    def of_site(self, parameters, position, place):
        # as a loop does whose lambdas see its last block
        return lambda: parameters.down[-1, place]


class NoSites(SPromptPlusPlus):
    def sites(self, parameters):
        return []


@pytest.mark.slow
def test_sites_that_are_none_are_skipped_with_the_reason() -> None:
    """Checks of sites stay in the list, so that an author sees that nothing is protected."""
    record = attrs.evolve(S_PROMPT_PLUS_PLUS, name="no-sites", build=NoSites, presets={}, tuned={})
    results = {case.check.name: case.result() for case in contract_cases(record)}
    skipped = {name: result.message for name, result in results.items() if result.status == "skipped"}
    checks = ("sites_are_what_they_say", "taps_read_what_is_multiplied", "probe_reaches_measured_sites")
    assert skipped == dict.fromkeys(
        (*checks, "protection_holds"), "no sites: nothing is measured or protected"
    )


test_broken_ones_fail = pytest.mark.slow(BROKEN.fail())  # a small run each
