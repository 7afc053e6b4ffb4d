"""Stored features as a benchmark: cut into tasks like images, from wherever they come."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lw2g.errors import ConfigError
from lw2g.interfaces.vectors import VectorSource
from lw2g_benchmarks.features import FeaturesBenchmark
from lw2g_benchmarks.options import FeaturesConfig
from vectors import CLASSES, DIM, vector_file

KINDS = {
    "classes": {"increment": 2},
    "domains": {"stream": "domains"},
    "versatile": {"stream": "versatile", "increment": 3},
    "repetition": {"stream": "repetition", "tasks": 5, "increment": 3},
    "shots": {"increment": 3, "shots": 4},
    "imbalance": {"increment": 3, "imbalance": 10.0},
    "seeded": {"increment": 2, "order": "seeded", "order_seed": 7},
    "a base task": {"increment": 2, "base": 4},
}


@pytest.fixture
def file(tmp_path):
    """A file of six classes in two domains."""
    return vector_file(tmp_path / "f.npz")


def stream_of(file, **options):
    """Return the stream of a file."""
    return FeaturesBenchmark(FeaturesConfig(file=file, **options)).stream()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_stream_gives_rows_of_the_file(file, kind):
    """Whatever tasks bring, a row has the vector, the class and the domain that the file gives it."""
    arrays = np.load(file)
    stream = stream_of(file, **KINDS[kind])
    assert len(stream.tasks) > 1
    for task in stream.tasks:
        for split, data in (("train", task.train), ("test", task.test)):
            assert isinstance(data.source, VectorSource)
            assert torch.equal(
                data.source.vectors(data.indices), torch.from_numpy(arrays[f"{split}_x"][data.indices])
            )
            raw = [stream.class_order[position] for position in data.labels]
            assert raw == arrays[f"{split}_y"][data.indices].tolist()
            if task.domain:
                assert set(arrays[f"{split}_domain"][data.indices].tolist()) <= {int(task.domain)}


def test_sizes_are_drawn(file):
    """Shots and long tails leave the rows that they promise."""
    shots = stream_of(file, **KINDS["shots"])
    assert {np.bincount(task.train.labels)[-1] for task in shots.tasks} == {4}
    tail = stream_of(file, **KINDS["imbalance"])
    counts = [int((task.train.labels == place).sum()) for task in tail.tasks for place in task.classes]
    assert (counts[0], counts[-1]) == (12, 1)


def test_domains_are_taken_in_the_wanted_order(file):
    """A domain that is not named is left out, rows and all."""
    names = [task.domain for task in stream_of(file, stream="domains", domain_order=("1", "0")).tasks]
    assert names == ["1", "0"]
    (only,) = stream_of(file, stream="domains", domain_order=("1",)).tasks
    assert len(only.train) == CLASSES * 6


def test_where_rows_come_from_is_known(file, tmp_path):
    """Of a file without metadata the digest of its rows is all, and it is theirs alone."""
    vectors = stream_of(file, increment=2).vectors
    assert (vectors.dim, vectors.model, vectors.sha256) == (DIM, "", "")
    other = stream_of(vector_file(tmp_path / "g.npz", seed=1), increment=2)
    assert vectors.digest != other.vectors.digest
    said = '{"backbone": {"timm_name": "a_vit", "sha256": "cafe"}}'
    told = stream_of(vector_file(tmp_path / "h.npz", metadata=np.array(said)), increment=2)
    assert (told.vectors.model, told.vectors.sha256) == ("a_vit", "cafe")
    assert told.deviations == (
        "stored features in place of images: 8 numbers in float32, made by a_vit, weights cafe",
    )


def test_the_fingerprint_follows_every_bit(file, tmp_path):
    """Another vector, label or order is another stream; another kind of file is not."""
    first = stream_of(file, increment=2).fingerprint
    arrays = dict(np.load(file))
    np.savez_compressed(tmp_path / "same.npz", **arrays)
    assert stream_of(tmp_path / "same.npz", increment=2).fingerprint == first
    arrays["test_x"][3, 1] += 1e-6
    np.savez(tmp_path / "bit.npz", **arrays)
    assert stream_of(tmp_path / "bit.npz", increment=2).fingerprint != first
    assert stream_of(file, increment=2, order="seeded").fingerprint != first


@pytest.mark.parametrize("changed", ["train_x", "test_x"])
def test_the_digest_is_of_both_splits(file, tmp_path, changed):
    """One other number in either makes it another file."""
    arrays = dict(np.load(file))
    arrays[changed][-1, -1] += 1
    np.savez(tmp_path / "other.npz", **arrays)
    digests = {stream_of(path, increment=2).vectors.digest for path in (file, tmp_path / "other.npz")}
    assert len(digests) == 2


@pytest.mark.parametrize("numbers", [[2, 3, 4], [0, 2, 1, 3], [5, 4, 3], [7, 7, 7], [3], []])
def test_vectors_come_in_the_order_that_is_asked_for(file, numbers):
    """Ones that follow each other, ones that only seem to, and repeated ones; each is a copy."""
    source = stream_of(file, increment=2).tasks[0].train.source
    rows = source.vectors(np.array(numbers, dtype=np.int64))
    assert rows.tolist() == np.load(file)["train_x"][numbers].tolist()
    rows.zero_()
    assert (
        source.vectors(np.array(numbers, dtype=np.int64)).tolist()
        == np.load(file)["train_x"][numbers].tolist()
    )


def test_what_cannot_be_cut_is_refused(file, tmp_path):
    """No file, no domains, an unknown domain."""
    with pytest.raises(ConfigError, match="needs 'file'"):
        stream_of(None)
    plain = vector_file(tmp_path / "g.npz", train_domain=None, test_domain=None)
    with pytest.raises(ConfigError, match=r"'domains' needs domains, and '.*g\.npz' has none"):
        stream_of(plain, stream="domains")
    with pytest.raises(ConfigError, match="no domain '7'"):
        stream_of(file, stream="domains", domain_order=("7",))
    with pytest.raises(ConfigError, match="the stream 'classes' has no domains"):
        stream_of(file, domain_order=("1",))
