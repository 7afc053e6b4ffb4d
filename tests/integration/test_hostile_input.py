"""Hostile input ends in one line that names it and a remedy, with exit code 2 and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from installed import load_instead
from lw2g.cli.main import main
from lw2g.vit.weights import file_sha256

DIGITS = ("--benchmark", "digits", "--baseline", "dual-prompt", "--policy", "always")
MICRO = Path(__file__).parents[2] / "plugins/lw2g_backbones/micro.safetensors"
DEEP = 20_000


def execute(*arguments):
    """Run a command in this process; return its result and its lines that speak of an error."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result, [line for line in result.stderr.splitlines() if not line.startswith("note: ")]


def listing(folder):
    """Return every path below a folder with the hash of its content."""
    return {
        path.relative_to(folder): file_sha256(path) if path.is_file() else None for path in folder.rglob("*")
    }


def refused(*arguments):
    """Run a command that has to be refused in one line; return the line."""
    before = listing(Path.cwd())
    result, lines = execute(*arguments)
    assert result.exit_code == 2, result.output
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert len(lines[0]) < 2_050
    assert listing(Path.cwd()) == before
    return lines[0]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)


def write(name, content):
    """Write a file of text or bytes and return its path."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


OPTIONS = [
    ("growth.energy=nan", "growth.energy: expected a finite number but got nan"),
    ("growth.energy=inf", "growth.energy: expected a finite number but got inf"),
    ("baseline.clip_norm=inf", "baseline.clip_norm: expected a number or 'none' but got inf"),
    ("baseline.lr=-inf", "baseline.lr: expected a finite number but got -inf"),
    (f"baseline.lr={'9' * 5000}", "(5002 characters)"),
    (f"baseline.lr={'9' * 4000}", "baseline.lr: expected a finite number but got a number of 13288 bits"),
    (f"baseline.epochs={'9' * 5000}", "(5002 characters)"),
    (f"baseline.epochs=0x{'f' * 5000}", "expected a number of 64 bits but got a number of 20000 bits"),
    (f"baseline.epochs={2**63}", f"expected a number of 64 bits but got {2**63}"),
    (f"baseline.epochs={'[' * DEEP}{']' * DEEP}", "baseline.epochs: expected a whole number but got '[[["),
    (f"growth{'.a' * DEEP}=1", "expected a key of the form growth.OPTION"),
    ('benchmark.normalise="a\\u0000b"', "a\\x00b"),
    ('run.device="\\u0000"', "run.device: expected text without NUL"),
    ('backbone.weights="a\\u0000b"', "'a\\x00b'"),
    ("backbone.weights=a\udcffb", "'a\\udcffb'"),
    ("benchmark.order_seed=4294967296", "benchmark.order_seed: must be <= 4294967295: 4294967296"),
    ("run.seed=-1", "run.seed: must be >= 0: -1"),
    ("backbone.image_size=4", "cannot take images of 4 pixels: a side is a multiple of 8"),
    ("backbone.image_size=33", "such as 32"),
    ("backbone.image_size=100000", "for images of 100000 pixels cannot fit"),
    ("run.evaluation_batch=1000000000", "run.evaluation_batch: 1000000000 images cannot fit"),
    ("baseline.shared_length=1000000000000", "tried to allocate 1024000000000000 bytes"),
    ("baseline.batch_size=0", "baseline.batch_size: must be >= 1: 0"),
    ("run.devices=1000", "run.devices: 1000 is too many for the"),
]


@pytest.mark.parametrize(("setting", "told"), OPTIONS, ids=[setting[:40] for setting, _ in OPTIONS])
def test_options(setting, told):
    """A value that no run could use is refused before anything is allocated or written."""
    assert told in refused("run", *DIGITS, "--set", setting)


def test_a_set_that_cannot_fit():
    """What the system has no memory for is told in one line that says what to lower."""
    result, lines = execute("run", *DIGITS, "--set", "baseline.length=1000000000000")
    assert result.exit_code == 2
    assert "error: out of memory (can't allocate memory: you tried to allocate " in lines[-1]
    assert "lower baseline.batch_size, run.evaluation_batch or the size of the baseline's sets" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--seeds", "-1"), "-1"),
        (("--seeds", str(2**63)), str(2**63)),
        (("--seeds", "1,x"), "'1,x'"),
        (("--seed", "-1"), "--seed: must be >= 0: -1"),
        (("--seed", "9" * 5000), "999"),
        (("--out", "/dev/null"), "'/dev/null' is no directory; choose another --out"),
        (("--out", "file/run"), "file"),
        (("--out", "a\0b"), "no path can be called 'a\\x00b'"),
        (("--out", "x" * 300), "(302 characters) is too long for a path; shorten it"),
        (("--out", ""), "--out: the path is empty; give the path of a file or a folder"),
        (("--out", "/proc/none/run"), "/proc/none"),
        ((".",), "'.'"),
        (("none.toml",), "'none.toml' cannot be read"),
        (("big.toml",), "'big.toml' is no TOML"),
        (("deep.toml",), "'deep.toml' is no TOML"),
        (("binary.toml",), "'binary.toml' is no TOML"),
        (("--weights", "."), "holds no weights"),
    ],
)
def test_arguments(arguments, told):
    """Bad seeds, places and files."""
    write("file", "")
    write("big.toml", f"[baseline]\nepochs = {'9' * 5000}\n")
    write("deep.toml", f"[baseline]\nepochs = {'[' * DEEP}{']' * DEEP}\n")
    write("binary.toml", bytes(range(256)))
    result, lines = execute("run", *DIGITS, *arguments)
    assert result.exit_code == 2
    assert told in lines[-1]
    assert sorted(path.name for path in Path.cwd().iterdir()) == [
        "big.toml",
        "binary.toml",
        "deep.toml",
        "file",
    ]


def changed(change):
    """Return the micro weights after a change."""
    state = load_file(MICRO)
    change(state)
    return state


def _nan(state):
    state["blocks.1.mlp.fc1.bias"][3] = torch.nan


def _inf(state):
    state["blocks.1.mlp.fc1.weight"][3, 2] = -torch.inf


def _zero(state):
    for tensor in state.values():
        tensor.zero_()


def _integer(state):
    state["blocks.0.attn.qkv.weight"] = (state["blocks.0.attn.qkv.weight"] * 10).to(torch.int8)


def micro_metadata():
    """Return the metadata of the embedded weights."""
    with safe_open(MICRO, "pt") as file:
        return dict(file.metadata())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_nan, "'blocks.1.mlp.fc1.bias' holds NaN or infinity"),
        (_inf, "'blocks.1.mlp.fc1.weight' holds NaN or infinity"),
        (_zero, "is all zero"),
        (_integer, "'blocks.0.attn.qkv.weight' holds torch.int8"),
    ],
)
def test_numbers_in_weights(change, told):
    """Weights that cannot have been trained are refused by the tensor's name."""
    save_file(changed(change), "w.safetensors", metadata=micro_metadata())
    line = refused("run", *DIGITS, "--weights", "w.safetensors")
    assert told in line
    assert "w.safetensors" in line


@pytest.mark.parametrize(
    "metadata",
    [
        {"architecture": "[]"},
        {"architecture": "{"},
        {"architecture": "{}"},
        {"architecture": '{"embed_dim": "x"}'},
        {"architecture": '{"embed_dim": 1000000000}'},
        {"architecture": "[" * DEEP},
        {"architecture": '{"no_such": 1}'},
        {"mean": "[1, 2]"},
        {"mean": "3"},
        {"mean": '["a", "b", "c"]'},
        {"mean": "[NaN, 0, 0]"},
        {"std": "[0, 0, 0]"},
        {"std": "[-1, 1, 1]"},
    ],
)
def test_metadata_of_weights(metadata):
    """What weights say of themselves is not believed before it is understood."""
    save_file(load_file(MICRO), "w.safetensors", metadata=micro_metadata() | metadata)
    assert "w.safetensors" in refused("run", *DIGITS, "--weights", "w.safetensors")


NO_WEIGHTS = [b"hello\n", b"", b"\x80\x02}q\x00.", b"PK\x03\x04 no archive", bytes(range(256)) * 8]
FILES = [("w.pth", content) for content in NO_WEIGHTS]
FILES += [("w.npz", NO_WEIGHTS[3]), ("w.safetensors", NO_WEIGHTS[4]), ("w.tar", NO_WEIGHTS[0])]


@pytest.mark.parametrize(("name", "content"), FILES)
def test_files_that_are_no_weights(name, content):
    """Text, nothing, an empty pickle or noise under the name of a weights file."""
    write(name, content)
    arguments = ("--backbone", "deit_tiny_patch16_224.fb_in1k", "--weights", name)
    assert repr(name)[1:-1] in refused("run", *DIGITS, *arguments)


RECORDS = [
    b"[]", b"{}", b"null", b"3", b'{"metrics": 3}', b'{"seeds": 1, "metrics": {}}', b"{",
    b"\xff", b"[" * DEEP,
    b'{"seeds": [1], "metrics": {"faa": 3}}', b'{"x": ' + b"9" * 5000 + b"}",
    b'{"config": {}, "decisions": [], "metrics": {}}',
]  # fmt: skip


@pytest.mark.parametrize("content", RECORDS, ids=lambda content: str(content[:30]))
def test_records(content):
    """A record that lw2g did not write."""
    write("run/record.json", content)
    assert "'run/record.json'" in refused("show", "run")


def test_too_few_open_files_for_workers(monkeypatch):
    """Said before anything is learned, and not by one of the processes that decode."""
    monkeypatch.setattr("resource.getrlimit", lambda what: (20, 20))
    line = refused("run", *DIGITS, "--set", "run.workers=2", "--out", "run")
    assert "run.workers: 2 need 72 open files, and the system allows 20; raise its limit" in line


def test_directories_in_place_of_files():
    """A directory where a file is expected is named."""
    for place in ("run/record.json", "other/config.toml"):
        Path(place).mkdir(parents=True)
    assert "'run/record.json'" in refused("show", "run")
    assert "'other/config.toml'" in refused("resume", "other")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device", "runs/x/record.json"), "'runs/x/record.json': No space left"),
        (OSError(28, "No space left on device"), "error: No space left on device; make room"),
        (OSError(30, "Read-only file system", "here"), "'here': Read-only file system; name a place"),
        (OSError("strange"), "error: strange; check the path"),
        (MemoryError(), "out of memory (MemoryError); lower baseline.batch_size"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to\nallocate"),
            "out of memory (CUDA out of memory.",
        ),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9"), "out of memory ("),
    ],
)
def test_what_the_system_refuses(monkeypatch, error, told):
    """Errors of the system end in one line; whatever else a command raises keeps its traceback."""

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("lw2g.lifecycle.runner.start", fail)
    line = refused("run", *DIGITS)
    assert told in line
    assert "lw2g resume" not in line  # nothing had begun
    error = RuntimeError("a bug")
    assert CliRunner().invoke(main, ["run", *DIGITS]).exception is error


def test_a_model_that_cannot_be_written_is_no_run():
    """Whoever makes a model is not told to resume a run."""
    Path("photos/a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save("photos/a/0.png")
    line = refused("start", "photos", "/dev/null/model")
    assert "'/dev/null'" in line
    assert "resume" not in line


def test_images_to_predict(finished, catalogue, monkeypatch):
    """Bombs, text, floats and directories are told by their path, and nothing is predicted."""
    load_instead(monkeypatch, lambda **_: catalogue)
    Image.new("1", (20_000, 20_000)).save("bomb.png")
    Image.new("F", (3, 3)).save("real.tiff")
    write("text.png", "hello")
    told = {
        "bomb.png": "its header claims",
        "real.tiff": "have no known range",
        "text.png": "it is no image of the formats",
    }
    for name, reason in told.items():
        line = refused("predict", finished[0], name)
        assert f"'{name}'" in line
        assert reason in line
