"""The tiny backbone: everyone gets one of their own."""

from __future__ import annotations

import copy

import torch

from lw2g_testing import tiny_backbone
from lw2g_testing.tiny import _drawn


def test_a_copy_has_everything_and_shares_nothing_that_changes():
    """Modules, tensors and tables are those that ``copy.deepcopy`` gives, and others than the drawn ones."""
    drawn = _drawn(6, 32, 16, 0.0)
    wanted = copy.deepcopy(drawn)
    images = torch.randn(2, 3, 16, 16)
    mine = tiny_backbone()
    assert torch.equal(mine.features(images), wanted.features(images))
    for one, other, source in zip(mine.modules(), wanted.modules(), drawn.modules(), strict=True):
        assert type(one) is type(other)
        assert vars(one).keys() == vars(other).keys()
        for name, value in vars(one).items():
            if isinstance(value, dict | list | set):
                assert value is not vars(source)[name]
                assert type(value) is type(vars(other)[name])
                assert len(value) == len(vars(other)[name])
    for one, source in zip(mine.state_dict().values(), drawn.state_dict().values(), strict=True):
        assert torch.equal(one, source)
        assert one.data_ptr() != source.data_ptr()
    assert not any(parameter.requires_grad for parameter in mine.parameters())
