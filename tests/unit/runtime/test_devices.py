"""Tests of device, precision and determinism."""

import os
from types import SimpleNamespace

import attrs
import pytest
import torch

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError
from lw2g.ground.notes import tell_note_once
from lw2g.model.parts import open_backbone
from lw2g.runtime import allocator, engine, threads
from lw2g.runtime.engine import environment, open_engine, require_compiler, suited_device
from lw2g.vit.backbone import Backbone
from lw2g_testing.tiny import tiny_backbone, tiny_catalogue


@pytest.fixture(autouse=True)
def _torch_as_it_was(monkeypatch):
    """Put torch's choices for the process back."""
    kept = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield
    torch.set_float32_matmul_precision(kept[0])
    torch.backends.cudnn.allow_tf32 = kept[1]
    torch.use_deterministic_algorithms(False)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def test_float32_means_float32_in_products_and_convolutions():
    """No TF32, whatever the process had chosen before."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    open_engine("cpu", "32-true")
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("wanted", [True, False])
def test_kernels_are_deterministic_where_asked_and_the_record_says_so(wanted):
    """One run's choice does not leak into the next one, and cuBLAS gets its workspace only where needed."""
    torch.use_deterministic_algorithms(not wanted)
    engine = open_engine("cpu", "32-true", deterministic=wanted)
    assert torch.are_deterministic_algorithms_enabled() is wanted
    assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) is wanted
    assert environment(engine)["deterministic"] is wanted


@pytest.mark.parametrize(
    ("device", "missing"), [("cpu", "a C\\+\\+ compiler"), ("cuda", "the package triton")]
)
def test_compiling_needs_a_compiler(monkeypatch, device, missing):
    """Without one a run ends before it begins, with the remedy."""
    monkeypatch.setattr(engine.shutil, "which", lambda name: None)
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=f"run.compile: {missing} is not found; install it or set"):
        require_compiler(torch.device(device))
    monkeypatch.setattr(engine.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(engine, "find_spec", lambda name: name)
    require_compiler(torch.device(device))


@pytest.mark.parametrize("left_alone", [None, "jemalloc takes its place"])
def test_the_record_says_whether_memory_is_kept(monkeypatch, left_alone):
    """An engine on the CPU says what the allocator did, and the record with it."""
    monkeypatch.setattr(allocator, "who_manages_memory", lambda: left_alone)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=lambda *what: 1))
    assert environment(open_engine("cpu", "32-true"))["keeps_memory"] is (left_alone is None)


@pytest.mark.parametrize(
    ("asked", "opened"),
    [
        ("auto", "cuda:0"),
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        ("cpu", "cpu"),
        ("mps", None),
        ("cuda:2", None),
    ],
)
def test_a_device_is_opened_by_name_or_refused_with_what_there_is(monkeypatch, asked, opened):
    """``auto`` takes a GPU before the processor; one that is not there is refused in one line."""
    current = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    if opened is None:
        with pytest.raises(ConfigError, match=r"torch sees cuda:0, cuda:1\); try device='cpu'"):
            open_engine(asked, "32-true")
        return
    assert str(open_engine(asked, "32-true").device) == opened
    assert [str(device) for device in current] == [opened] * (opened != "cpu")


@pytest.mark.parametrize(
    ("asked", "gpus", "small", "device"),
    [
        ("auto", 1, True, "cpu"),
        ("auto", 1, False, "cuda:0"),
        ("auto", 0, False, "cpu"),
        ("cuda", 1, True, "cuda:0"),
        ("cuda:1", 2, True, "cuda:1"),
        ("cpu", 1, False, "cpu"),
    ],
)
def test_a_small_network_is_the_processors_unless_a_gpu_is_named(monkeypatch, asked, gpus, small, device):
    """What ``auto`` chooses depends on the network; a device that is named is obeyed, and none is opened."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: pytest.fail("opened"))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert str(suited_device(asked, small=small)) == device


@pytest.mark.parametrize(("products", "devices", "told"), [(99e6, 1, True), (101e6, 1, False), (1, 2, False)])
def test_where_a_network_of_small_products_computes_is_told(monkeypatch, caplog, products, devices, told):
    """In one line, with the option that puts it on the GPU; several processes were placed before."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(threads, "largest_product", lambda backbone: products)
    monkeypatch.setattr(Backbone, "to", lambda self, device: pytest.fail(f"moved to {device}"))
    tell_note_once.cache_clear()
    config = resolve(
        tiny_catalogue(),
        overrides={"run.precision": "32-true"},
        baseline="no-prompt",
        benchmark="tiny",
        backbone="tiny",
    ).config
    config = attrs.evolve(config, run=attrs.evolve(config.run, devices=devices))
    device = "cpu" if told else "cuda:0"
    with pytest.raises(pytest.fail.Exception, match=f"moved to {device}"):
        open_backbone(config, tiny_backbone)
    line = "note: computed on the CPU: the network is too small for cuda to be faster (device cuda computes"
    assert (line in caplog.text) == told


def test_a_gpu_that_cannot_be_opened_is_told_in_one_line(monkeypatch):
    """What the driver says is the reason, without the lines that follow."""

    def refuse(device):
        raise RuntimeError("CUDA error: all devices are busy\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    with pytest.raises(ConfigError, match=r"'cuda' cannot be used \(CUDA error: all devices are busy\)"):
        open_engine("cuda", "32-true")
