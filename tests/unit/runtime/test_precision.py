"""Tests of what ``run.precision = "auto"`` takes, and that a run keeps it."""

import hashlib
import itertools
import re
import time

import pytest
import torch

from lw2g.config.toml import read_toml
from lw2g.disk import settled
from lw2g.disk.contents import read_record, record_hash
from lw2g.disk.settled import settle
from lw2g.errors import DataError
from lw2g.ground.processor import read_processor
from lw2g.interfaces.tracker import RunStarted
from lw2g.lifecycle.runner import resume, start
from lw2g.runtime import precision
from lw2g.runtime.engine import BF16, FP32
from lw2g.runtime.precision import PrecisionChoice, Step, choose_precision
from lw2g_testing.tiny import tiny_backbone

ASKED = {"run.precision": "auto", "baseline.epochs": 1, "benchmark.tasks": 1}
TAKEN = PrecisionChoice(used=BF16, reason="taken")

EPYC = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC 9354
flags\t\t: fpu sse2 avx2 avx512f avx512bw avx512_bf16 avx512_vnni
bogomips\t: 5192.26

processor\t: 1
vendor_id\t: AuthenticAMD
flags\t\t: fpu sse2 avx2 avx512f avx512bw avx512_bf16 avx512_vnni
"""
OLD_EPYC = "vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7543\nflags\t\t: fpu sse2 avx2 sha_ni\n"
SAPPHIRE_RAPIDS = """vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8481C
flags\t\t: fpu avx512f avx512_bf16 avx512_fp16 amx_bf16 amx_tile amx_int8
bugs\t\t: spectre_v1
"""
COOPER_LAKE = """vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8380H
flags\t\t: fpu avx512f avx512_vnni avx512_bf16
"""
ICE_LAKE = "vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_vnni\nbugs\t\t: avx512_bf16 amx_bf16\n"
GRAVITON = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd sve asimdhp svebf16 bf16 i8mm
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


@pytest.mark.parametrize(
    ("text", "used", "said"),
    [
        pytest.param(EPYC, BF16, "AMD's and has avx512_bf16", id="AMD Zen 4"),
        pytest.param(OLD_EPYC, FP32, "neither amx_bf16 nor avx512_bf16", id="AMD Zen 3"),
        pytest.param(SAPPHIRE_RAPIDS, BF16, "has amx_bf16", id="Intel with AMX"),
        pytest.param(COOPER_LAKE, FP32, "AMD's CPUs alone", id="Intel without AMX"),
        pytest.param(ICE_LAKE, FP32, "neither amx_bf16 nor avx512_bf16", id="Intel without bf16"),
        pytest.param(GRAVITON, FP32, "neither amx_bf16 nor avx512_bf16", id="ARM"),
        pytest.param("Processor : unknown\n", FP32, "does not tell", id="no flags"),
        pytest.param(None, FP32, "does not tell", id="no such file, as on macOS"),
    ],
)
def test_the_processor_decides(tmp_path, text, used, said):
    """AMX, and AVX-512 of AMD's, compute faster in bf16; what is not known to do so takes float32."""
    info = tmp_path / "cpuinfo"
    if text is not None:
        info.write_text(text)
    choice = precision.of_processor(read_processor(info))
    assert (choice.used, said in choice.reason, choice.asked) == (used, True, "auto")


@pytest.mark.parametrize(("capability", "used"), [((7, 5), FP32), ((8, 0), BF16), ((9, 0), BF16)])
def test_a_gpu_decides_by_its_capability(monkeypatch, capability, used):
    """Ampere was the first with bf16 units; other devices than NVIDIA's take float32."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert precision.of_device(torch.device("cuda:1")).used == used
    assert precision.of_device(torch.device("mps")).used == FP32


def step(loss=1.0, off=0.0, first=0.0):
    """Return a step that gave a loss, and gradients of three images, off by so much."""
    return Step(loss=loss, gradient=torch.tensor([[9.0, first], [1.0, off], [1.0, off]]))


@pytest.mark.parametrize(
    ("reduced", "said"),
    [
        (step(1.04, 0.2), None),
        (step(1.04, 0.2, first=9.0), None),
        (step(1.06), "loss by 6.0%"),
        (step(1.0, 0.3), "gradient by 30.0%"),
        (step(float("nan")), "loss by nan%"),
        (step(1.0, float("nan")), "gradient by nan%"),
    ],
)
def test_bf16_is_safe_where_loss_and_median_gradient_agree(reduced, said):
    """The loss within 5 %, the median image's gradient within 25 % of float32's."""
    found = precision.compared(step(), reduced)
    assert found is None if said is None else said in found


@pytest.fixture
def fast_in_bf16(monkeypatch):
    """A CPU on which bf16 is taken where it is safe, whatever the size of the backbone."""
    monkeypatch.setattr(precision, "_SMALL", {"cpu": 0})
    monkeypatch.setattr(precision, "of_device", lambda device: TAKEN)


def test_what_is_fast_is_checked(monkeypatch, fast_in_bf16):
    """bf16 is taken where a real step is safe in it, and not where it differs."""
    backbone = tiny_backbone()
    assert choose_precision(backbone) == TAKEN
    monkeypatch.setattr(precision, "_GRADIENT", 0.0)
    refused = choose_precision(backbone)
    assert (refused.used, refused.reason.startswith("bf16 is not safe here: loss by ")) == (FP32, True)


def test_what_is_settled_already_is_not_checked(monkeypatch):
    """A small backbone and a device without bf16 take no step."""
    monkeypatch.setattr(precision, "training_step", None)
    backbone = tiny_backbone()
    assert choose_precision(backbone).reason == "the backbone is small"
    monkeypatch.setattr(precision, "_SMALL", {"cpu": 0})
    monkeypatch.setattr(precision, "read_processor", lambda: None)
    assert choose_precision(backbone).reason == "the system does not tell what the CPU can do"


def test_the_choice_reads_no_clock(monkeypatch, fast_in_bf16):
    """A busy machine chooses as a quiet one does: whatever time passes, the choice is the same."""

    def stopped():
        raise AssertionError("the choice reads a clock")

    for clock in ("perf_counter", "monotonic", "process_time", "time"):
        monkeypatch.setattr(time, clock, stopped)
    backbone = tiny_backbone()
    assert choose_precision(backbone) == choose_precision(backbone) == TAKEN


def test_checking_changes_neither_generator_nor_backbone(fast_in_bf16):
    """The steps are real, and leave weights, flags and the stream of random numbers as they were."""
    backbone = tiny_backbone()
    weights = {name: value.clone() for name, value in backbone.state_dict().items()}
    before = torch.get_rng_state()
    with torch.no_grad():
        choice = choose_precision(backbone)
    assert choice == TAKEN
    assert torch.equal(torch.get_rng_state(), before)
    assert backbone.dtype == torch.float32
    assert all(torch.equal(value, weights[name]) for name, value in backbone.state_dict().items())
    assert not any(p.requires_grad or p.grad is not None for p in backbone.parameters())


class Heard:
    """A listener that keeps the notes and details of the run's start."""

    def __init__(self):
        self.notes = []

    def on_event(self, event):
        if isinstance(event, RunStarted):
            self.notes.append((event.notes, event.details))

    def close(self):
        """Nothing to close."""


def test_auto_is_settled_once_and_kept(monkeypatch, tmp_path, quick, catalogue):
    """Configuration, record and events tell the choice, displays a refusal; a resumed run chooses no more."""
    heard, directory = Heard(), tmp_path / "run"
    resolved = quick(ASKED, policy="always", constraints=())
    assert resolved.config.run.precision == "auto"
    monkeypatch.setattr(settled, "choose_precision", lambda backbone: TAKEN)
    record = start(resolved, catalogue, directory, [heard])
    assert record["precision"] == {"used": BF16, "reason": "taken", "asked": "auto"}
    assert record["environment"]["precision"] == record["config"]["run"]["precision"] == BF16
    assert record["environment"]["attention"] == "plain"
    assert read_toml(directory / "config.toml")["run"]["precision"] == BF16
    monkeypatch.setattr(settled, "choose_precision", None)
    (directory / "record.json").unlink()
    again = resume(directory, catalogue, [heard])
    assert again["precision"] == record["precision"]
    first, second = heard.notes
    assert first == ((), ("precision bf16-mixed (taken)",))
    assert not any("precision" in note for notes in second for note in notes)
    unsafe = PrecisionChoice(used=FP32, reason="bf16 is not safe here: loss by 9.0%")
    monkeypatch.setattr(settled, "choose_precision", lambda backbone: unsafe)
    start(resolved, catalogue, tmp_path / "slower", [heard])
    assert heard.notes[-1] == (("precision 32-true (bf16 is not safe here: loss by 9.0%)",), ())


def test_runs_that_share_a_folder_settle_once(monkeypatch, tmp_path):
    """The first one's choice holds for the same backbone on the same kind of device, and for no other."""
    backbone, folder = tiny_backbone(), tmp_path / "settled"
    choices = iter([TAKEN, PrecisionChoice(used=FP32, reason="another device")])
    monkeypatch.setattr(settled, "choose_precision", lambda backbone: next(choices))
    assert [settle(backbone, device, folder) for device in ("cuda:0", "cuda:1")] == [TAKEN, TAKEN]
    assert settle(backbone, "cpu", folder).reason == "another device"
    assert settle(backbone, "cuda", folder) == TAKEN


def test_the_first_to_write_settles_it(monkeypatch, tmp_path):
    """Of two runs that choose at the same time, the later one takes what the other wrote meanwhile."""
    backbone = tiny_backbone()

    def outrun(backbone):
        monkeypatch.setattr(settled, "choose_precision", lambda backbone: TAKEN)
        settle(backbone, "cpu", tmp_path)
        return PrecisionChoice(used=FP32, reason="too late")

    monkeypatch.setattr(settled, "choose_precision", outrun)
    assert settle(backbone, "cpu", tmp_path) == TAKEN
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("taken", "edited"))
    with pytest.raises(DataError, match="remove it, and the next run settles the precision anew"):
        settle(backbone, "cpu", tmp_path)


def test_the_record_hash_leaves_out_the_clocks_alone(finished):
    """It is that of everything else: other seconds keep it, another reason or metric changes it."""
    record = read_record(finished[0])
    clocks = {"seconds": {"total": 0.1}, "images_per_second": None}
    assert record["record_hash"] == record_hash(record) == record_hash(record | clocks)
    left_out = re.compile(r'^ "(seconds|images_per_second|record_hash|sha256)":')
    lines = (finished[0] / "record.json").read_text().splitlines(keepends=True)
    told = [line for line in lines if not left_out.match(line)]
    assert hashlib.sha256("".join(told[:-1]).encode()).hexdigest() == record["record_hash"]
    for key in record.keys() - {*clocks, "record_hash", "sha256"}:
        assert record_hash(record | {key: "other"}) != record["record_hash"], key


def test_two_runs_have_one_record_hash(monkeypatch, tmp_path, quick, catalogue, fast_in_bf16):
    """Whatever the clock says, the same configuration gives the same record but the clocks."""
    resolved = quick(ASKED, policy="always", constraints=())
    now = itertools.count()
    records = [start(resolved, catalogue, tmp_path / "quiet")]
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(now) ** 2))
    records.append(start(resolved, catalogue, tmp_path / "busy"))
    assert records[0]["seconds"] != records[1]["seconds"]
    assert records[0]["precision"]["asked"] == "auto"
    assert records[0]["record_hash"] == records[1]["record_hash"]
