"""What answers at once: commands that only look things up import no numerical library."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lw2g.cli.own_commands import OWN_COMMANDS
from lw2g.errors import PluginError
from lw2g.interfaces.component import Lazy, lazy
from lw2g.registry.catalogue import load_catalogue

HEAVY = {
    "PIL",
    "huggingface_hub",
    "lightning_fabric",
    "numpy",
    "pandas",
    "pyarrow",
    "safetensors",
    "scipy",
    "sklearn",
    "tensorboard",
    "timm",
    "torch",
    "torchvision",
}
SLOW = {"timm", "torchvision", "torch._dynamo", "torch._inductor", "sympy", "sklearn", "scipy", "pandas"}
PRODUCTS = (
    "lw2g_datasets",
    "lw2g_hub",
    "lw2g_page",
    "lw2g_peft",
    "lw2g_photos",
    "lw2g_store",
    "lw2g_testing",
)
"""Packages with commands, whose records are looked through for a name."""
"""What a plain ViT does not need; all but scipy cost seconds, and it some tenths of one."""
RUN = """
import json, os, sys
from lw2g.cli.main import main
try:
    *befores, last = json.loads(os.environ["CALLS"])
    for before in befores:
        main(before, prog_name="lw2g", standalone_mode=False)
        print("-- next")
    main(last, prog_name="lw2g")
finally:
    sys.stdout.flush()
    with open(os.environ["SEEN"], "w") as file:
        json.dump(sorted(sys.modules), file)
"""
EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"
COMPLETION = {"_LW2G_COMPLETE": "bash_complete", "COMP_WORDS": "lw2g run --baseline hide", "COMP_CWORD": "3"}


def called(
    folder: Path, *calls: list[str], environment: Mapping[str, str] | None = None
) -> tuple[str, set[str]]:
    """Return what a command prints and the modules that its process has imported.

    Of several, which run one after another, what each prints stands between lines ``-- next``.
    """
    seen = folder / "seen.json"
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=folder,
        env={**os.environ, **(environment or {}), "CALLS": json.dumps(calls), "SEEN": str(seen)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, set(json.loads(seen.read_text()))


LOOKING_UP = {
    "plugins": "dual-prompt",
    "plugins baseline": "hide-prompt",
    "plugins --json": "hide-prompt",
    "plugins hide-prompt": "contrastive",
    "config": "[baseline]",
    "data list": "imagenet-r",
    "sweep --help": "retry",
    f"runs {EXPERIMENTS / 'growth'}": "no run at or below",
    "new-plugin of-mine --kind baseline": "of-mine",
    "run --help": "--baseline",
    "--help": "lw2g",
    "--version": "lw2g",
    "completion zsh": "lw2g",
    "check --help": "--all",
}
"""Commands and what each says."""


def test_looking_up_imports_no_numerical_library(tmp_path):
    """Listings, configurations and new packages need the records of plugins alone.

    They run in one process: what one of them imports, all have imported.
    """
    printed, imported = called(tmp_path, *map(str.split, LOOKING_UP))
    for text, says in zip(printed.split("-- next\n"), LOOKING_UP.values(), strict=True):
        assert says in text
    assert HEAVY & imported == set()


def test_a_mistyped_folder_is_refused_before_torch_is_imported(tmp_path):
    """A slip of `lw2g start` is answered at once."""
    code = (
        "import sys\n"
        "from lw2g.errors import DataError\n"
        "from lw2g_photos import photographs\n"
        "try:\n    photographs.start('gone', 'model', backbone='vit-tiny')\n"
        "except DataError as error:\n    print(error)\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "no folder 'gone'; give a folder that holds CLASS/IMAGE\nFalse\n"


def test_completion_imports_no_numerical_library(tmp_path):
    """The shell waits for it at each tab."""
    printed, imported = called(tmp_path, [], environment=COMPLETION)
    assert "hide-prompt" in printed
    assert HEAVY & imported == set()


def test_help_imports_neither_a_command_nor_a_plugin(tmp_path):
    """What `lw2g --help` says stands in records; of the commands, one that is asked imports itself."""
    modules = {record.target.partition(":")[0] for record in OWN_COMMANDS}
    _, imported = called(tmp_path, ["--help"])
    assert modules & imported == set()
    of_packages = {name for name in imported if name.startswith("lw2g_")}
    assert of_packages == {name for product in PRODUCTS for name in (product, f"{product}.plugin")}
    _, imported = called(tmp_path, ["export", "--help"])
    assert modules & imported == {"lw2g.cli.export_command"}


def test_verifying_a_run_imports_no_torch(finished, tmp_path):
    """Checksums and metrics of a run need numpy alone."""
    printed, imported = called(tmp_path, ["verify", str(finished[0])])
    assert "everything holds" in printed
    assert HEAVY & imported == {"numpy", "safetensors"}


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of classes that differ in colour: three to start with, and ``new`` to learn."""
    root = tmp_path_factory.mktemp("drawings")
    generator = np.random.default_rng(0)
    for place, name in enumerate(("old/red", "old/green", "old/blue", "new/grey")):
        (root / name).mkdir(parents=True)
        for number in range(8):
            pixels = generator.integers(0, 120, (32, 32, 3), dtype=np.uint8)
            pixels[..., place % 3] += 100
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


@pytest.mark.slow
def test_a_model_is_made_used_and_taught_without_slow_imports(drawings, tmp_path):
    """torch is all that a plain ViT needs: no timm, no torchvision, none of torch's compiler."""
    model, image = str(tmp_path / "model"), str(drawings / "old" / "red" / "0.png")
    start = ["start", str(drawings / "old"), model, "--device", "cpu"]
    printed, imported = called(tmp_path, start)
    assert "learned 24 images of 3 classes" in printed
    assert SLOW & imported == set()

    # one process for those that use a model: what one of them imports, all have imported
    printed, imported = called(
        tmp_path,
        ["predict", model, image, "--device", "cpu"],
        ["test", model, str(drawings / "old"), "--device", "cpu"],
        ["learn", model, str(drawings / "new"), "--device", "cpu"],
    )
    predicted, tested, learned = printed.split("-- next\n")
    assert "red" in predicted
    assert "of 24 images, of which it has learned all, of 3 classes" in tested
    assert "of 1 new class" in learned
    assert SLOW & imported == set()
    # no components but those of the model; `start` looks up what the user has named
    packages = {name for name in imported if name.startswith("lw2g_") and "." not in name}
    assert packages == {"lw2g_backbones", "lw2g_heads", "lw2g_single_set", *PRODUCTS}


def test_every_record_leads_to_its_code():
    """What a record names as its code can be imported and called."""
    builds = [entry.component.build for entry in load_catalogue().components()]
    named = [build for build in builds if isinstance(build, Lazy)]
    assert len(named) >= 25
    assert all(callable(build.load()) for build in named)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("no_such_package.baseline:Mine", "No module named 'no_such_package'"),
        ("lw2g.errors:Mine", "has no attribute 'Mine'"),
    ],
)
def test_code_that_is_not_there_is_told_in_one_line(target, says):
    """A record whose code cannot be imported fails when it is built, with its name and the remedy."""
    with pytest.raises(PluginError, match="cannot be imported") as error:
        lazy(target)("config", "context")
    assert repr(target) in str(error.value)
    assert says in str(error.value)


def test_a_name_without_a_module_is_no_code():
    """``lazy`` takes what an entry point takes."""
    with pytest.raises(ValueError, match="match"):
        lazy("Mine")


@pytest.mark.parametrize(
    ("module", "code", "place"),
    [
        ("typing_error", "def (\n", "typing_error.py, line 1"),  # its traceback holds no frame of the plugin
        ("wrong_name", "import os\nos.nothing", "wrong_name.py:2"),
    ],
)
def test_an_error_in_a_lazy_module_is_told_in_one_line(tmp_path, monkeypatch, module, code, place):
    """It has the plugin's own line, and does not pass for an error of lw2g's own."""
    (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=rf"cannot be imported: .*\({re.escape(place)}\)"):
        lazy(f"{module}:Mine").load()


def test_nothing_stays_out_of_the_collectors_sight_at_the_end() -> None:
    """What was frozen after the imports is thawed before extensions look for what they have left behind."""
    code = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count()))\n"
        "from lw2g.runtime.collector import collector_waits\n"
        "with collector_waits():\n    pass\n"
        "print(gc.get_freeze_count() > 0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "0"]


CORES = """
import json, os, sys
import lw2g.runtime.importing as importing
importing.allowed_cores = lambda: 2
os.environ.pop("OMP_NUM_THREADS", None)
torch = None
threads = []
for load, setting in json.loads(sys.argv[1]):
    os.getloadavg = lambda: (load, 0, 0)
    if setting is not None:
        os.environ["OMP_NUM_THREADS"] = setting
    with importing.importing_torch():
        if torch is None:
            import torch
        sys.modules["torch"] = torch
        torch.set_num_threads(2)
    threads.append(torch.get_num_threads())
    # a second time torch is there already, and what a program has set stays
    torch.set_num_threads(2)
    with importing.importing_torch():
        pass
    threads.append(torch.get_num_threads())
    del sys.modules["torch"]  # the next one finds it not imported
print(json.dumps(threads))
"""


def test_a_command_that_answers_leaves_the_cores_of_a_busy_machine() -> None:
    """On cores that others hold it computes on one thread, unless the user has said on how many."""
    cases = json.dumps([(9.0, None), (0.0, None), (9.0, "2")])
    ended = subprocess.run([sys.executable, "-c", CORES, cases], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == [1, 2, 2, 2, 2, 2]
