"""One run, several processes: training steps are split over ranks, everything else is repeated on each.

Rank 0 is the user's process, and the only one that writes and prints. It starts the others, which load the
run's newest checkpoint, as a resume does. In a training step each rank
computes a slice of the batch; gradients, weighted by the slices' shares, are summed as one flat vector, so
that all ranks take the same optimizer step. All else has the same inputs and seeds on every rank, and hence
the same result; the ranks compare their parameters after every task.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any

import attrs
import torch
from torch import Tensor, distributed, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from lw2g.config.settings import ExperimentConfig
from lw2g.errors import ConfigError, ContractError, Lw2gError, as_word
from lw2g.ground.processor import allowed_cores
from lw2g.runtime.progress import STOPS

__all__ = [
    "RankLostError",
    "Ranks",
    "average",
    "follow",
    "number",
    "on_its_device",
    "require_agreement",
    "share",
    "size",
]

_PATIENCE = timedelta(minutes=30)
"""How long ranks wait for each other."""
_GRACE = 5.0
"""Seconds to wait for the exit code of a rank that has ended."""
_PROGRAM = "from lw2g.runtime import ranks; from lw2g.lifecycle import runner; ranks.follow(runner.follow)"
"""The program of a further rank."""
_here = {"rank": 0, "size": 1}


class RankLostError(Lw2gError):
    """A rank of the run has ended, or cannot be reached."""

    exit_code = 1


def number() -> int:
    """Return the rank of this process; 0 writes."""
    return _here["rank"]


def size() -> int:
    """Return the number of ranks."""
    return _here["size"]


def on_its_device(config: ExperimentConfig, count: int, rank: int = 0) -> ExperimentConfig:
    """Return the configuration of a rank: a device of its own, and kernels that give all ranks the same bits.

    Args:
        config: Of the run.
        count: Number of ranks.
        rank: Which one.

    Raises:
        ConfigError: There are fewer cores or GPUs.
    """
    run = config.run
    if count == 1:
        if run.devices == 1:
            return config
        return attrs.evolve(config, run=attrs.evolve(run, devices=1))
    gpu = run.device == "cuda" or (run.device == "auto" and torch.cuda.is_available())
    if not gpu and run.device not in {"auto", "cpu"}:
        raise ConfigError(
            f"run.device: {run.device!r} is one device, and {count} processes need one each",
            "use auto, cuda or cpu",
        )
    if gpu:
        there = torch.cuda.device_count()
        what = "GPUs"
    else:
        there = allowed_cores()
        what = "cores"
    if 0 < there < count:  # the engine reports that there is no device
        raise ConfigError(f"run.devices: {count!r} is too many for the {what} here", f"use at most {there}")
    device = run.device
    if gpu and rank > 0:  # rank 0 takes the first one
        device = f"cuda:{rank}"
    # ranks compute the same evaluations: kernels of a GPU that add in any order would part them
    deterministic = run.deterministic or gpu
    run = attrs.evolve(run, devices=count, device=device, deterministic=deterministic)
    return attrs.evolve(config, run=run)


# -- the ranks, as rank 0 sees them --------------------------------------------------------------------------


class Ranks:
    """The processes of a run; those that this one starts end with the block, or when this one ends.

    Args:
        count: How many, this one included.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._directory = Path()
        self._others: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def __enter__(self) -> Ranks:
        self._threads = torch.get_num_threads()
        if self._count > 1:
            # every rank has as many threads: their number decides last bits
            torch.set_num_threads(max(1, self._threads // self._count))
        return self

    def start(self, directory: Path) -> None:
        """Let the others load the run's newest checkpoint; do not wait."""
        if self._count == 1:
            return
        self._directory = directory
        # listens at a port that the system chooses: a free port found earlier could be taken by then
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        variables = dict(os.environ)
        variables["OMP_NUM_THREADS"] = str(torch.get_num_threads())
        # plugins may come from folders that only this process has on its path
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        for rank in range(1, self._count):
            arguments = map(str, (directory, rank, self._count, self._store.port, os.getpid()))
            errors = TemporaryFile()  # noqa: SIM115 (open for as long as the process runs)
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *arguments],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for rank 0
            )
            self._others.append((process, errors))

    def meet(self, device: torch.device) -> None:
        """Wait until all ranks have reached this point; from now on they train together.

        Raises:
            RankLostError: One has ended before.
        """
        if self._count == 1:
            return
        # each of the others adds 1; to add 0 reads the counter
        while self._store.add("ready", 0) < self._count - 1:
            if any(process.poll() is not None for process, _ in self._others):
                raise RankLostError("a process of the run has ended")
            time.sleep(0.05)
        _join(self._store, 0, self._count, device)

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        why = self._why() if isinstance(error, RankLostError) else ""
        for process, errors in self._others:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # they write nothing, so that nothing is lost
            process.wait()
            errors.close()
        if size() > 1:
            distributed.distributed_c10d._abort_process_group()  # destroying one waits for the others
            _here.update(rank=0, size=1)
        if self._count > 1:
            torch.set_num_threads(self._threads)
        if why:
            raise RankLostError(why, f"go on: lw2g resume {as_word(self._directory)}") from error

    def _why(self) -> str:
        """Return how the lost process ended; it may take a moment until it has."""
        until = time.monotonic() + _GRACE
        while time.monotonic() < until:
            for rank, (process, errors) in enumerate(self._others, start=1):
                code = process.poll()
                if code is None:
                    continue
                if code < 0:
                    reason = f"killed by {signal.Signals(-code).name}"
                else:
                    # the last line of a traceback is the error
                    errors.seek(0)
                    reason = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
                return f"process {rank + 1} of {self._count} ended ({reason})"
            time.sleep(0.05)
        return f"one of {self._count} processes cannot be reached"


def _join(store: TCPStore, rank: int, count: int, device: torch.device) -> None:
    """Become one of the ranks; tensors of the CPU go by gloo, those of GPUs by NCCL."""
    backend = "gloo"
    if device.type == "cuda":
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=_PATIENCE)
    _here.update(rank=rank, size=count)


# -- a further rank ------------------------------------------------------------------------------------------


Go = Callable[[Path, Callable[[ExperimentConfig], ExperimentConfig], Callable[[torch.device], None]], None]


def follow(go: Go) -> None:
    """Be a further rank, by this program's arguments, until rank 0 ends it.

    Args:
        go: Runs a directory; called with it, the rank's configuration and a function that joins rank 0.
    """
    directory, *numbers = sys.argv[1:]
    rank, count, port, parent = map(int, numbers)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)  # a scheduler signals all processes, and rank 0 stops the run

    def join(device: torch.device) -> None:
        """Tell rank 0 that this rank is ready, and train with it from now on."""
        store = TCPStore("127.0.0.1", port, timeout=_PATIENCE)
        store.add("ready", 1)
        _join(store, rank, count, device)

    try:
        go(Path(directory), lambda config: on_its_device(config, count, rank), join)
    except RankLostError:
        pass  # another one has ended, and rank 0 says why
    except Lw2gError as error:
        sys.exit(str(error))
    threading.Event().wait()  # for good: rank 0 ends this process


def _end_with(parent: int) -> None:
    """End this process and its children as soon as its parent has ended, however it ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)


# -- work together; a process alone does everything ----------------------------------------------------------


def share(positions: Sequence[int]) -> tuple[Sequence[int], float]:
    """Return this rank's slice of a batch, and its share of the batch.

    A rank without images (a batch smaller than the number of ranks) computes on the first one with weight 0.
    """
    # every image has one rank: where a slice ends, the next one begins
    first = len(positions) * number() // size()
    last = len(positions) * (number() + 1) // size()
    return positions[first:last] or positions[:1], (last - first) / len(positions)


def average(
    parameters: Sequence[nn.Parameter], losses: Mapping[str, Tensor], weight: float
) -> dict[str, Tensor]:
    """Add up gradients and losses of a step over all ranks; return the losses.

    A parameter without a gradient on any rank keeps none.

    Args:
        parameters: The trained parameters; their gradients are replaced.
        losses: Of this rank's slice of the batch, by name.
        weight: This rank's share of the batch.

    Raises:
        ContractError: The names of the losses depend on the images.
        RankLostError: A rank has ended.
    """
    if size() == 1:
        return dict(losses)
    # First how many losses each rank has, and on how many ranks each parameter has a gradient: vectors of
    # different lengths cannot be summed. Through the CPU, where the loss of a rank is noticed at once.
    counts = [len(losses)]
    for parameter in parameters:
        counts.append(parameter.grad is not None)
    parts, *present = _summed(torch.tensor(counts)).tolist()
    if parts != size() * len(losses):
        raise ContractError(
            f"the processes of a run have losses of {sorted(losses)} and others",
            "which losses a step has must not depend on its images",
        )
    moved: list[nn.Parameter] = []
    pieces: list[Tensor] = []
    for parameter, ranks in zip(parameters, present, strict=True):
        if ranks == 0:
            continue
        moved.append(parameter)
        gradient = parameter.grad
        if gradient is None:  # another rank has one: this rank's images add nothing to it
            gradient = torch.zeros_like(parameter)
        pieces.append(gradient.flatten())
    pieces.append(torch.stack([loss.detach().float().reshape(()) for loss in losses.values()]))
    # one vector, because each exchange between processes costs its latency
    flat = _summed(torch.cat(pieces) * weight)
    *gradients, means = torch.split(flat, [len(piece) for piece in pieces])
    for parameter, gradient in zip(moved, gradients, strict=True):
        parameter.grad = gradient.view_as(parameter).to(parameter.dtype)
    return dict(zip(losses, means.unbind(), strict=True))


def require_agreement(state: Mapping[str, Tensor], when: str) -> None:
    """Refuse to continue if ranks hold different bits.

    Raises:
        ContractError: They do; the message names the first tensor.
    """
    if size() == 1:
        return
    # checksums, because states are large and only their equality is asked
    checksums = {name: _checksum(value) for name, value in state.items()}
    gathered: list[Any] = [None] * size()
    with _reaching():
        distributed.all_gather_object(gathered, checksums)
    for name in checksums:
        if any(other.get(name) != checksums[name] for other in gathered):
            raise ContractError(
                f"the {size()} processes of the run have come apart {when} (in {name!r}): something draws "
                "without the run's seeds, or keeps what a step saw of its images",
                "go on: lw2g resume RUN --devices 1",
            )


def _checksum(value: Tensor) -> int:
    # the checksum is of bytes, because numpy has no bfloat16
    return zlib.crc32(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _summed(values: Tensor) -> Tensor:
    with _reaching():
        distributed.all_reduce(values)
    return values


@contextmanager
def _reaching() -> Iterator[None]:
    """Turn the errors of torch's exchange between processes into one line for the user."""
    try:
        yield
    except torch.OutOfMemoryError:  # a RuntimeError too, and this process's own
        raise
    except RuntimeError as error:
        raise RankLostError(f"one of {size()} processes cannot be reached") from error
