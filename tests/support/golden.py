"""What small runs end with, to the bit: recorded before a change, compared after it.

    python tests/support/golden.py record FILE [--only NAME...]
    python tests/support/golden.py compare FILE [--only NAME...]

Bits differ between machines and versions of torch, so the file stays where it was made. The runs go through
the command line, so they survive any change behind it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch
from click.testing import CliRunner
from safetensors.numpy import load_file

from lw2g.cli.main import main
from lw2g.registry.catalogue import load_catalogue

__all__ = ["RUNS", "compare", "differences", "record"]

_TASKS = 3
_SET = {
    "run.device": "cpu",
    "run.precision": "32-true",
    "run.evaluation_batch": 64,
    "growth.images": 32,
    "growth.draws": 2,
}
_LONGEST = {"epochs": 1, "warmup_epochs": 0, "decay_epochs": 1}
"""By option; of others that count epochs, two."""
_FIELDS = (
    "task_to_set",
    "metrics",
    "accuracy_matrix",
    "retrieval_matrix",
    "decisions",
    "feature_drift",
    "stale_classes",
    "routing",
    "storage",
)
"""Of the record; of the predictions a digest."""


def _lw2g(*arguments: object) -> str:
    """Run a command in this process and return what it prints."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if done.exit_code:
        raise RuntimeError(f"lw2g {' '.join(map(str, arguments))}\n{done.output}") from done.exception
    return done.stdout


def _chosen(baseline: str, policy: str | None, **options: Any) -> list[str]:
    """Return the arguments of a run that is short."""
    names = ["--baseline", baseline, "--benchmark", "digits"] + (["--policy", policy] if policy else [])
    resolved = tomllib.loads(_lw2g("config", *names))
    short = {
        f"{section}.{key}": min(value, _LONGEST.get(key, 2))
        for section in ("baseline", "retrieval")
        for key, value in resolved.get(section, {}).items()
        if key.endswith("epochs")
    }
    settings = _SET | short | {key.replace("__", "."): value for key, value in options.items()}
    return [*names, *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


def _plain(baseline: str, policy: str | None = None, **options: Any) -> Callable[[Path], None]:
    tasks = 1 if baseline.startswith("joint") else _TASKS  # joint ones have all classes in one

    def run(out: Path) -> None:
        _lw2g("run", *_chosen(baseline, policy, **options), "--tasks", tasks, "--out", out)

    return run


def _forked(out: Path) -> None:
    """The second task gets a set of its own where `one` shared the first."""
    source = out.with_name("source")
    _lw2g("run", *_chosen("dual-prompt", "one"), "--tasks", 1, "--out", source)
    _lw2g("fork", source, "--at-task", 1, "--policy", "always", "--tasks", _TASKS, "--out", out)


def _killed(out: Path) -> None:
    """A run of its own process is killed as it begins to train its second task, and resumed."""
    command = [sys.executable, "-m", "lw2g", "run", *_chosen("hide-prompt", "min"), "--tasks", str(_TASKS)]
    with subprocess.Popen([*command, "--out", str(out)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        begun = any(line.startswith(f"task 2/{_TASKS}:") for line in process.stderr)
        process.kill()
    if not begun:
        raise RuntimeError("the run to be killed did not reach its second task")
    _lw2g("resume", out)


def _runs() -> dict[str, Callable[[Path], None]]:
    catalogue = load_catalogue()
    found = {}
    for name in catalogue.names("baseline"):
        grows = catalogue.get("baseline", name).growth != "fixed"
        found[f"{name} min" if grows else name] = _plain(name, "min" if grows else None)
    return found | {
        "dual-prompt always": _plain("dual-prompt", "always"),
        "hide-prompt always": _plain("hide-prompt", "always"),
        "carried head": _plain("dual-prompt", "one", baseline__head="lda", baseline__head_carry="affine"),
        "soft routing": _plain("dual-prompt", "always", routing__mix=3),
        "fork": _forked,
        "kill and resume": _killed,
    }


RUNS = _runs()


def _ending(name: str) -> dict[str, Any]:
    """Return what a run ends with."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        RUNS[name](directory)
        written = json.loads((directory / "record.json").read_text(encoding="utf-8"))
        predictions = load_file(max((directory / "predictions").iterdir()))
    digest = hashlib.sha256()
    for field in sorted(predictions):
        digest.update(field.encode() + predictions[field].tobytes())
    return {**{field: written[field] for field in _FIELDS}, "predictions": digest.hexdigest()}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of everything that holds nothing further."""
    if isinstance(value, dict | list) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, f"{path}/{key}" if path else str(key))
    else:
        yield path, value


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for each field whose numbers moved, and for everything else that is not the same."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    lines, moved = [], {}
    for path in sorted(old.keys() | new.keys()):
        was, now = old.get(path, "absent"), new.get(path, "absent")
        if was == now:
            continue
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (was, now)):
            moved.setdefault(path.split("/")[0], []).append((abs(now - was), path))
        else:
            lines.append(f"{path}: {was!r} became {now!r}")
    for field, found in moved.items():
        most, path = max(found)
        lines.append(f"{field}: differs by at most {most:.2g} ({path}; {len(found)} in all)")
    return lines


def record(file: Path, only: list[str]) -> None:
    """Write what the runs end with."""
    file.write_text(json.dumps({name: _ending(name) for name in only}, indent=1), encoding="utf-8")


def compare(file: Path, only: list[str]) -> bool:
    """Tell how the runs end otherwise than recorded; return whether none does."""
    recorded, equal = json.loads(file.read_text(encoding="utf-8")), True
    for name in only:
        found = differences(recorded[name], _ending(name)) if name in recorded else ["not recorded"]
        print(f"{name}: {'differs' if found else 'equal to the bit'}", *found, sep="\n    ", flush=True)
        equal = equal and not found
    return equal


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", choices=sorted(RUNS), default=list(RUNS), metavar="NAME")
    asked = parser.parse_args()
    if asked.action == "record":
        record(asked.file, asked.only)
    elif not compare(asked.file, asked.only):
        sys.exit(1)
