"""A stage for constraints: a set with sites, spaces of old tasks, and the context of a task."""

from __future__ import annotations

import attrs
import pytest
import torch
from torch import nn

from lw2g.interfaces.memory import SpaceOptions, SubspaceMemory
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.site import Activation, Site
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g.vit.taps import Tap
from tasks import task_context, tasks_of


def moment(dim, directions, heads=1):
    """Return the second moment of rows that lie along the given coordinate axes."""
    result = SecondMoment(dim, heads)
    result.update(torch.eye(dim)[list(directions)])
    return result


@attrs.define(kw_only=True)
class Stage:
    """A memory, the site of a set (width 6) and the site of shared parameters, with whole-energy spaces."""

    memory: SubspaceMemory
    own: Site
    shared: Site
    asked: list[str] = attrs.field(factory=list)

    def context(self, *, task=1, grew=False, set_id=0):
        """Return the context of a task; every use of the pre-trained space is noted in ``asked``."""

        def pretrained(site):
            self.asked.append(site.name)
            return Subspace(basis=torch.eye(6, dtype=torch.float64)[None, :, :2], ranks=(2,))

        pool = Pool()
        pool.task_to_set = [set_id] * (task + 1)
        history = tasks_of([1] * (task + 1))
        return task_context(pool, history, grew=grew, memory=self.memory, pretrained_space=pretrained)


@pytest.fixture
def stage():
    """An empty stage."""
    return Stage(
        memory=SubspaceMemory(SpaceOptions(energy=1.0)),
        own=Site(
            name="blocks.2.prefix_key",
            parameter=nn.Parameter(torch.zeros(3, 6)),
            activation=Activation(tap=Tap(2, "query")),
        ),
        shared=Site(
            name="blocks.0.prefix_key",
            parameter=nn.Parameter(torch.zeros(3, 6)),
            activation=Activation(tap=Tap(0, "query")),
            owner="shared",
        ),
    )


@pytest.fixture
def make_moment():
    """The function that makes second moments."""
    return moment
