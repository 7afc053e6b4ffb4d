"""How much of lw2g a flow passes through: functions and files entered between two fixed points.

    python scripts/flows.py [TREE] [--list WORD]

TREE is the checkout to measure, today's by default: an older one is measured by the same rule. Small runs on
digits with the embedded backbone are profiled by ``sys.setprofile``, so a function counts once however often
it is called. Display of progress is left out, and so are lambdas, comprehensions and generator expressions,
which a reader meets within their function, and bodies of classes, which run where a module is imported.
``--list learn`` names the functions of the flows that are called so.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_parser = argparse.ArgumentParser(description="Count the functions and files that a flow enters.")
_parser.add_argument("tree", nargs="?", type=Path, default=Path(__file__).parents[1])
_parser.add_argument("--list", metavar="WORD", help="name the functions of the flows that are called so")
CHOSEN = _parser.parse_args()
TREE = CHOSEN.tree.resolve()
sys.path[:0] = [str(TREE), str(TREE / "plugins")]  # before what is installed

from click.testing import CliRunner  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: E402

from lw2g.cli.main import main  # noqa: E402

_OURS = tuple(f"{TREE / folder}/" for folder in ("lw2g", "plugins"))
_DISPLAY = ("progress.py", "progress_display.py", "pace.py", "frames.py")
"""Modules that show where a run stands."""
_RUN = ("--baseline", "dual-prompt", "--policy", "min", "--benchmark", "digits")
_SHORT = {
    "run.device": "cpu",
    "run.precision": "32-true",
    "baseline.epochs": 1,
    "benchmark.increment": 2,
    "growth.images": 32,
    "growth.draws": 2,
}


class Flow:
    """What was entered while a flow was open.

    Attributes:
        entered: File and name of each function.
    """

    def __init__(self) -> None:
        self.entered: set[tuple[str, str]] = set()

    def enter(self, code: CodeType) -> None:
        """Count a function of ours that is none of the display."""
        if not code.co_filename.startswith(_OURS) or Path(code.co_filename).name in _DISPLAY:
            return
        is_function = code.co_flags & inspect.CO_NEWLOCALS  # the body of a class has the locals of its class
        if code.co_name.startswith("<") or not is_function:
            return
        self.entered.add((code.co_filename, code.co_qualname))

    def __str__(self) -> str:
        files = {file for file, _ in self.entered}
        return f"{len(self.entered)} / {len(files)}"

    def lines(self) -> Iterator[str]:
        """Yield a line for each file: its functions that were entered."""
        names: dict[str, list[str]] = defaultdict(list)
        for file, name in sorted(self.entered):
            names[file].append(name)
        for file, entered in names.items():
            yield f"{Path(file).relative_to(TREE)}: {', '.join(entered)}"


class Watch:
    """Opens and closes flows at the calls of named functions.

    Args:
        opens: Name of a function -> what its call opens.
        closes: Name of a function -> what its call closes.
        ends: Name of a function -> what its return closes.
    """

    def __init__(
        self, opens: dict[str, Flow], closes: dict[str, list[Flow]], ends: dict[str, list[Flow]]
    ) -> None:
        self._opens, self._closes, self._ends = opens, closes, ends
        self._open: set[Flow] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take an event of the profiler."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(_OURS):
            return
        if event == "call":
            self._open.difference_update(self._closes.get(code.co_name, ()))
            if code.co_name in self._opens:
                self._open.add(self._opens[code.co_name])
            for flow in self._open:
                flow.enter(code)
        else:
            self._open.difference_update(self._ends.get(code.co_name, ()))

    def open(self, flow: Flow) -> None:
        """Open a flow from outside."""
        self._open.add(flow)

    def close(self, flow: Flow) -> None:
        """Close one from outside."""
        self._open.discard(flow)


@contextmanager
def watched(watch: Callable[..., None]) -> Iterator[None]:
    """Profile this thread and those that begin meanwhile."""
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def lw2g(*arguments: object) -> None:
    """Run a command in this process."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if done.exit_code and not isinstance(done.exception, KeyboardInterrupt | SystemExit):
        raise RuntimeError(f"lw2g {' '.join(map(str, arguments))}\n{done.output}") from done.exception


def _settings() -> list[str]:
    return [word for key, value in _SHORT.items() for word in ("--set", f"{key}={value}")]


def measured(work: Path) -> dict[str, Flow]:
    """Return the flows by what they are called."""
    configured, gradient, evidence, checkpoint, resumed, predicted, learned = (Flow() for _ in range(7))
    # a whole run: from the command line to the runner; the second task's first step, decision and record
    watch = Watch(
        opens={"collect_evidence": evidence, "build_record": evidence, "_save": checkpoint},
        closes={"train_phase": [evidence], "start": [configured]},
        ends={"write_record": [evidence], "save_behind": [checkpoint]},
    )
    stepped = register_optimizer_step_pre_hook(lambda *_: watch.close(gradient))
    decided: set[str] = set()

    def watch_run(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_name if frame.f_code.co_filename.startswith(_OURS) else ""
        decided.update({name} & {"collect_evidence"})
        if event == "call" and name == "train_phase" and decided and not gradient.entered:
            watch.open(gradient)  # constraints bend gradients from the second task on
        watch(frame, event, argument)

    watch.open(configured)
    with watched(watch_run):
        lw2g("run", *_RUN, *_settings(), "--out", work / "run")
    stepped.remove()

    # a run that is interrupted in its second task, and taken up
    steps = 0

    def interrupt(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps == 40:
            raise KeyboardInterrupt

    stopping = register_optimizer_step_pre_hook(interrupt)
    with suppress(KeyboardInterrupt):
        lw2g("run", *_RUN, *_settings(), "--out", work / "cut")
    stopping.remove()
    watch = Watch(opens={}, closes={"train_phase": [resumed]}, ends={})
    watch.open(resumed)
    with watched(watch):
        lw2g("resume", work / "cut")

    # a model in use
    from PIL import Image

    import lw2g as library

    image = work / "image.png"
    Image.new("RGB", (16, 16), (20, 200, 90)).save(image)
    watch = Watch(opens={}, closes={}, ends={})
    watch.open(predicted)
    with watched(watch):
        library.load(work / "run").predict(str(image))

    # a model that goes on learning
    lw2g("run", "--baseline", "simple-cil", "--benchmark", "digits", *_plain(), "--out", work / "plain")
    lw2g("export", work / "plain", work / "model")
    for shade, name in enumerate(("one", "two")):
        (work / "photos" / name).mkdir(parents=True)
        for number in range(4):
            place = work / "photos" / name / f"{number}.png"
            Image.new("RGB", (16, 16), (60 * number, 90 * shade, 99)).save(place)
    watch = Watch(opens={}, closes={}, ends={})
    watch.open(learned)
    with watched(watch):
        lw2g("learn", work / "model", work / "photos")
    return {
        "`lw2g run --policy min`, to the runner": configured,
        "image to gradient": gradient,
        "evidence to decision, and to the record": evidence,
        "checkpoint": checkpoint,
        "resume, until it learns": resumed,
        "`lw2g.load` and one `predict`": predicted,
        "`learn`": learned,
    }


def _plain() -> list[str]:
    return ["--set", "run.device=cpu", "--set", "baseline.head=lda", "--set", "benchmark.increment=2"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder))
    print("| flow | functions / files |\n| --- | ---: |")
    for name, flow in found.items():
        print(f"| {name} | {flow if flow.entered else 'none'} |")
    for name, flow in found.items():
        if CHOSEN.list is not None and CHOSEN.list in name:
            print(f"\n{name}", *flow.lines(), sep="\n")
