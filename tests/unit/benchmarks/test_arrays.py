"""Data sets in torchvision's containers, on stand-ins for the data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision.datasets
from PIL import Image

from lw2g.errors import ConfigError, DataError
from lw2g_benchmarks import arrays
from lw2g_benchmarks.arrays import Cifar100Benchmark, FiveDatasetsBenchmark
from lw2g_benchmarks.data_set_facts import DATA_SETS
from lw2g_benchmarks.options import published_config

CifarConfig = published_config(DATA_SETS["cifar100"], 10)
FiveConfig = published_config(DATA_SETS["five-datasets"], 10)


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
def fake(monkeypatch, tmp_path):
    """Replace torchvision's CIFAR-100; return a root that holds its folder."""
    monkeypatch.setattr(torchvision.datasets, "CIFAR100", FakeCifar100)
    (tmp_path / "cifar-100-python").mkdir()
    return tmp_path


def stream(**options):
    """Return the stream of CIFAR-100 for some options."""
    return Cifar100Benchmark(CifarConfig(**options)).stream()


def test_default_is_inc10_task10(fake):
    """Ten tasks of ten classes in natural order with the official counts."""
    made = stream(root=fake)
    assert [len(task.classes) for task in made.tasks] == [10] * 10
    assert {(len(task.train), len(task.test)) for task in made.tasks} == {(5000, 1000)}
    assert made.class_names[:2] == ("c00", "c01")
    task = made.tasks[2]
    assert task.test.ids[0] == "test/20"
    assert task.test.source.image(task.test.indices[0])[:, 0, 0].tolist() == [20, 0, 0]


def test_a_larger_first_task(fake):
    """``base`` classes come first, the others in equal steps."""
    made = stream(root=fake, base=50, increment=25, order="seeded", order_seed=1993)
    assert [len(task.classes) for task in made.tasks] == [50, 25, 25]
    assert made.class_order[:3] == (68, 56, 78)
    with pytest.raises(ConfigError, match=r"benchmark\.base: 100 leaves none of 100 classes"):
        stream(root=fake, base=100)


def test_lost_images_are_noticed(fake, monkeypatch):
    """Counts that are not the official ones are an error with both numbers."""
    monkeypatch.setattr(FakeCifar100, "lost", 1)
    with pytest.raises(
        DataError, match="expected 100 classes of 500 images but found 100 classes of 499 to 500"
    ):
        stream(root=fake)


def test_damaged_data_name_the_remedy(tmp_path):
    """A folder that torchvision does not find whole is an error with the command that fetches it."""
    (tmp_path / "cifar-100-python").mkdir()
    with pytest.raises(DataError, match=r"CIFAR100 is missing or damaged in .*`lw2g data get cifar100`"):
        stream(root=tmp_path)


def test_defaults_augment_and_follow_the_backbones_statistics():
    """What holds for all methods alike; a method's official preset says otherwise."""
    pair = Cifar100Benchmark(CifarConfig()).transforms(28, (0.5,) * 3, (0.25,) * 3)
    black = torch.zeros(3, 32, 32, dtype=torch.uint8)
    assert (pair.test(black) == -2).all()
    assert not pair.train_is_deterministic


def fake_container(name):
    """Return a stand-in for a data set of torchvision: ten images, each of its class number's grey."""
    values = np.arange(10, dtype=np.uint8)

    class Container:
        def __init__(self, root, download, train=True, split="train"):
            self.labels = self.targets = values.astype(np.int64)
            if name == "SVHN":
                self.data = np.broadcast_to(values[:, None, None, None], (10, 3, 4, 4)).copy()
            elif name == "CIFAR10":
                self.data = np.broadcast_to(values[:, None, None, None], (10, 4, 4, 3)).copy()
            else:
                self.data = torch.from_numpy(np.broadcast_to(values[:, None, None], (10, 2, 2)).copy())

    return Container


@pytest.fixture
def five(monkeypatch, tmp_path):
    """Stand-ins for the four containers, and a NotMNIST with a file that is no image; return the root."""
    for name in ("SVHN", "MNIST", "CIFAR10", "FashionMNIST"):
        monkeypatch.setattr(torchvision.datasets, name, fake_container(name))
        monkeypatch.setitem(arrays._FIVE, name, (10, 10))
    for split in ("Train", "Test"):
        for label, letter in enumerate("ABCDEFGHIJ"):
            folder = tmp_path / "notMNIST" / split / letter
            folder.mkdir(parents=True)
            Image.new("L", (3, 3), label).save(folder / "a.png")
    (tmp_path / "notMNIST" / "Train" / "A" / "b.png").write_bytes(b"no image")
    return tmp_path


def test_five_data_sets_follow_each_other(five):
    """Each is a task; grey images get three channels, labels an offset, and what is broken is counted."""
    made = FiveDatasetsBenchmark(FiveConfig(root=five)).stream()
    assert [len(task.classes) for task in made.tasks] == [10] * 5
    assert [task.class_names[3] for task in made.tasks][::3] == ["SVHN/3", "NotMNIST/3"]
    for task in made.tasks:
        data = task.train
        images = [data.source.image(int(i)) for i in data.indices]
        assert {image.shape[0] for image in images} == {3}
        assert [int(image[0, 0, 0]) for image in images] == [int(label) % 10 for label in data.labels]
        assert [int(label) // 10 for label in data.labels] == [task.index] * 10
    assert made.deviations == ("1 unreadable file of NotMNIST left out",)


def test_five_data_sets_are_counted(five, monkeypatch):
    """A data set of other counts is refused by name; a missing NotMNIST names its folder."""
    monkeypatch.setitem(arrays._FIVE, "MNIST", (60_000, 10_000))
    with pytest.raises(DataError, match=r"MNIST train .*: expected 60000 images but found 10"):
        FiveDatasetsBenchmark(FiveConfig(root=five)).stream()
    made = FiveDatasetsBenchmark(FiveConfig(root=five, allow_incomplete=True)).stream()
    assert "MNIST train: 10 images instead of 60000" in made.deviations
    (five / "notMNIST").rename(five / "elsewhere")
    with pytest.raises(DataError, match=r"NotMNIST is missing.*`lw2g data get five-datasets`"):
        FiveDatasetsBenchmark(FiveConfig(root=five, allow_incomplete=True)).stream()
