"""A process's part of a batch: together the parts are the batch, in losses, gradients and draws."""

import pytest
import torch

from lw2g.blocks.contrastive import self_identification_loss
from lw2g.errors import ConfigError
from lw2g.interfaces.batch import Batch
from lw2g.training.devices.engine import open_engine
from lw2g.training.processes.place import Place
from lw2g.training.processes.slices import Slice
from lw2g.training.processes.team import ALONE, Team


def place(rank, size):
    """The place of one of several processes that do not exist."""
    return Place(rank, size, rank, size, "127.0.0.1", 1)


def cuts(count, size, rows):
    """The parts of a batch of so many images, each with what its process would gather."""
    made = [Team(place(rank, size)).cut(count) for rank in range(size)]
    return [
        Slice(first=one.first, last=one.last, total=count, weight=one.weight, gather=lambda _: rows.detach())
        for one in made
    ]


@pytest.mark.parametrize(("count", "size"), [(7, 3), (8, 2), (1, 2)])
def test_a_loss_of_the_whole_batch_has_its_gradient(count, size):
    """The weighted sum over processes of value and gradient is that of one; also with more than images."""
    rows = torch.randn(count, 5, requires_grad=True)
    old, weight = torch.randn(2, 5), torch.randn(5, 5, requires_grad=True)
    expected = self_identification_loss(rows.detach() @ weight, old)
    (wanted,) = torch.autograd.grad(expected, weight)
    value, gradient = torch.zeros(()), torch.zeros(5, 5)
    positions = list(range(count))
    for cut in cuts(count, size, rows @ weight):
        own = rows.detach()[list(cut.of(positions))] @ weight
        loss = self_identification_loss(cut.whole(own), old)
        (part,) = torch.autograd.grad(loss, weight)
        value, gradient = value + cut.weight * loss.detach(), gradient + cut.weight * part
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_draws_of_the_parts_are_those_of_the_batch():
    """Each image gets the number it gets in the whole batch, and the generator ends where it would."""
    torch.manual_seed(3)
    expected, after = torch.rand(7, 2), torch.rand(1)
    found = []
    for cut in cuts(7, 3, torch.zeros(7, 1)):
        none = torch.zeros(cut.last - cut.first, dtype=torch.long)
        batch = Batch(labels=none, samples=none, images=None, query=None).within(cut)
        torch.manual_seed(3)
        found.append(batch.draw(lambda count: torch.rand(count, 2)))
        assert batch.total == 7
        assert torch.equal(torch.rand(1), after)
    assert torch.equal(torch.cat(found), expected)


def test_a_whole_batch_is_left_as_it_is():
    """Alone, and in a phase that does not split, nothing is cut; of several processes one counts."""
    rows = torch.randn(4, 3)
    for team, weight in ((ALONE, 1.0), (Team(place(0, 2)), 1.0), (Team(place(1, 2)), 0.0)):
        cut = team.cut(4, splits=False)
        assert (cut.of([5, 6, 7, 8]), cut.weight) == ([5, 6, 7, 8], weight)
        assert cut.whole(rows) is rows


def test_portions_follow_each_other():
    """Every item is one process's, also where there are fewer than processes."""
    for count in (0, 1, 2, 7):
        parts = [Team(place(rank, 3)).portion(range(count)) for rank in range(3)]
        assert [item for part in parts for item in part] == list(range(count))


def test_a_place_is_read_as_torchrun_tells_it():
    """Number, host and where the first one listens; one process alone has none."""
    first = Place.first_of(2, 29500)
    other = Place.told(first.told_to(1))
    assert (other.global_rank(), other.world_size(), other.local_rank(), other.node_rank()) == (1, 2, 1, 0)
    assert (other.main_address, other.main_port) == (first.main_address, first.main_port)
    assert Place.told({**first.told_to(0), "WORLD_SIZE": "1"}) is None
    assert Place.told({}) is None
    assert Place(5, 8, 1, 4, "a", 1).node_rank() == 1


@pytest.mark.parametrize("device", ["cuda:1", "mps"])
def test_one_device_is_too_few_for_several_processes(device):
    """Said before anything is opened."""
    with pytest.raises(ConfigError, match=f"run.device: '{device}' is one device, and 2 processes need one"):
        open_engine(device, "32-true", team=Team(place(0, 2)))
