"""Split CIFAR-100, on a stand-in for the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lw2g.errors import ConfigError, DataError
from lw2g_benchmarks import cifar100
from lw2g_benchmarks.cifar100 import Cifar100Benchmark
from lw2g_benchmarks.options import Cifar100Config


class FakeCifar100:
    """The counts and attributes of torchvision's CIFAR100 with 2 x 2 images."""

    lost = 0

    def __init__(self, root, train, download):
        """Make images that hold their own number."""
        count = 50_000 if train else 10_000
        self.targets = (np.arange(count - self.lost) % 100).tolist()
        numbers = np.arange(count - self.lost, dtype=np.uint32)
        self.data = np.zeros((len(numbers), 2, 2, 3), dtype=np.uint8)
        self.data[:, 0, 0] = numbers.view(np.uint8).reshape(-1, 4)[:, :3]
        self.classes = [f"c{i:02d}" for i in range(100)]


@pytest.fixture
def fake(monkeypatch):
    """Replace torchvision's data set."""
    monkeypatch.setattr(cifar100, "CIFAR100", FakeCifar100)


def stream(**options):
    """Return the stream for some options."""
    return Cifar100Benchmark(Cifar100Config(**options)).stream()


@pytest.mark.usefixtures("fake")
def test_default_is_inc10_task10():
    """Ten tasks of ten classes in natural order with the official counts."""
    made = stream(root=Path("somewhere"))
    assert [len(task.classes) for task in made.tasks] == [10] * 10
    assert {(len(task.train), len(task.test)) for task in made.tasks} == {(5000, 1000)}
    assert made.class_names[:2] == ("c00", "c01")
    task = made.tasks[2]
    assert task.test.ids[0] == "test/20"
    assert task.test.source.image(task.test.indices[0])[:, 0, 0].tolist() == [20, 0, 0]


@pytest.mark.usefixtures("fake")
def test_lost_images_are_noticed(monkeypatch):
    """Counts that are not the official ones are an error with both numbers."""
    monkeypatch.setattr(FakeCifar100, "lost", 1)
    with pytest.raises(
        DataError, match="expected 100 classes of 500 images but found 100 classes of 499 to 500"
    ):
        stream(root=Path("somewhere"))


def test_missing_data_says_everything(tmp_path):
    """Missing data name the data set, paths, layout, page, archive, md5 and the download switch."""
    with pytest.raises(DataError) as caught:
        stream(root=tmp_path)
    message = str(caught.value)
    for part in (
        "CIFAR-100 is missing",
        str(tmp_path / "cifar-100-python" / "train"),
        "cifar-100-python/meta",
        "The CIFAR-10 and CIFAR-100 datasets",
        "cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
        "download = true",
    ):
        assert part in message


def test_root_comes_from_option_or_environment(monkeypatch, tmp_path):
    """Without an option the environment variable counts; without both the user is told of both."""
    monkeypatch.delenv(cifar100.ROOT_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="set 'root' or the environment variable LW2G_DATA"):
        stream()
    monkeypatch.setenv(cifar100.ROOT_VARIABLE, str(tmp_path))
    with pytest.raises(DataError, match="is missing"):
        stream()


def test_defaults_augment_and_follow_the_backbones_statistics():
    """What holds for all methods alike; a method's official preset says otherwise."""
    pair = Cifar100Benchmark(Cifar100Config()).transforms(28, (0.5,) * 3, (0.25,) * 3)
    black = torch.zeros(3, 32, 32, dtype=torch.uint8)
    assert (pair.test(black) == -2).all()
    assert not pair.train_is_deterministic
