"""Processes that decode images: started once, and fed with positions from then on.

Each image has its process, by its position, which alone keeps it decoded: no original is sent to another one.
A batch is made by all of them at once.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import attrs
import numpy as np
import torch

from lw2g.errors import ConfigError, Lw2gError, error_text
from lw2g.interfaces.stream import ImageTransform, RandomTransform, StagedTransform, TaskData
from lw2g.pixels.pixels import Originals, Packed
from lw2g.runtime.frames import Handed
from lw2g.runtime.progress import STOPS

__all__ = ["Keys", "Maker", "Part", "WorkerLostError", "Workers", "shared_objects"]

Keys = Sequence[tuple[int, int | None]]
"""Positions of images, each with the seed of its transform; None where that draws nothing."""

_AHEAD = 4
"""Batches that are made before they are asked for."""
_PATIENCE = 5.0
"""Seconds to wait for a process that has been ended."""


class WorkerLostError(Lw2gError):
    """A process that decodes images has ended."""

    exit_code = 1


class Part(NamedTuple):
    """Images that one process has made.

    Attributes:
        positions: Their positions.
        packed: The transformed images.
        sizes: Height and width of their originals.
        kept: Bytes of originals that the process keeps from now on.
    """

    positions: Sequence[int]
    packed: Packed
    sizes: Sequence[tuple[int, int]]
    kept: int


class Maker(Protocol):
    """Makes images in any process, into which it is pickled."""

    def make(self, keys: Keys) -> Part:
        """Return images, and keep new originals."""
        ...


@attrs.frozen
class _Job:
    """What a process is asked for.

    Attributes:
        alive: Numbers of all originals that are still in use; the process forgets the others.
        number: The number of the originals that the images are made from.
        originals: These originals, pickled; None where the process has them already.
        decoder: What makes the images, pickled.
        keys: The images.
        left: Bytes of originals that the process may keep in addition.
    """

    alive: tuple[int, ...]
    number: int
    originals: bytes | None
    decoder: bytes
    keys: Keys
    left: int


def shared_objects(parts: Iterable[TaskData], *transforms: ImageTransform) -> list[object]:
    """Return what images are made with: their sources, and transforms with their steps, each once."""
    objects: list[object] = list({id(data.source): data.source for data in parts}.values())
    for transform in transforms:
        steps: list[object] = [transform]
        if isinstance(transform, RandomTransform):
            steps += [transform.image, transform.batch]
        for step in steps:
            objects.append(step)
            if isinstance(step, StagedTransform):
                objects.append(step.pixels)
    return objects


class Workers:
    """The processes of a run that decode and transform images.

    They start with the first walk, if not before, and end with :meth:`close` or with the process that has
    started them, however that one ends.

    Args:
        count: How many.
        shared: Objects that they are started with, which are never sent to them.
        device: Where the run computes.
    """

    def __init__(self, count: int, shared: Sequence[object], device: torch.device) -> None:
        self._count = count
        self._shared = tuple(shared)
        self._device = device
        self._numbers = {id(one): number for number, one in enumerate(self._shared)}
        self._last = 0
        self._originals: WeakKeyDictionary[Originals, tuple[int, bytes]] = WeakKeyDictionary()
        self._decoders: WeakKeyDictionary[Maker, bytes] = WeakKeyDictionary()
        self._workers: list[_Worker] = []
        self._end: Any = None

    def start(self) -> None:
        """Start the processes; nothing where they run already.

        Call it before threads and CUDA are there: processes are forked, where the system does that.
        """
        if self._workers:
            return
        for _ in range(self._count):
            self._workers.append(_Worker(self._shared, self._device))
        # also at the end of this program, before multiprocessing waits for its processes
        self._end = Finalize(self, _end_all, args=(self._workers,), exitpriority=1)

    def close(self) -> None:
        """End the processes; a later walk starts others."""
        if self._end is not None:
            self._end()
        self._workers = []

    def walk(self, decoder: Maker, batches: Iterable[Keys], originals: Originals) -> Iterator[list[Part]]:
        """Yield the images of each batch; some batches are made before they are asked for.

        Args:
            decoder: Makes them.
            batches: What is wanted.
            originals: What the decoder reads.

        Raises:
            WorkerLostError: A process has ended.
            BaseException: What has arisen in a process.
        """
        self.start()
        ahead: deque[list[Future[Part | Handed]]] = deque()
        todo = iter(batches)
        try:
            while True:
                while len(ahead) < _AHEAD and (keys := next(todo, None)) is not None:
                    ahead.append(self._ask(decoder, keys, originals))
                if not ahead:
                    return
                parts = []
                for future in ahead.popleft():
                    part = future.result()
                    if isinstance(part, Handed):
                        raise part.raised()
                    parts.append(part)
                yield parts
        finally:  # a walk may be left where it is
            for futures in ahead:
                for future in futures:
                    future.cancel()

    def _ask(self, decoder: Maker, keys: Keys, originals: Originals) -> list[Future[Part | Handed]]:
        """Ask for the images of a batch; return a future for the share of each process that has one.

        An image always goes to the same process, by its position: that one may have kept its pixels.

        Args:
            decoder: Makes the images.
            keys: Position and seed of each image.
            originals: Where they come from.
        """
        if originals not in self._originals:
            self._last += 1
            self._originals[originals] = (self._last, self._pickled(originals))
        if decoder not in self._decoders:
            self._decoders[decoder] = self._pickled(decoder)
        number, pickled = self._originals[originals]
        alive = tuple(known for known, _ in self._originals.values())
        # bytes that each process may still keep
        left = originals.left // self._count
        shares: list[list[tuple[int, int | None]]] = [[] for _ in self._workers]
        for key in keys:
            shares[key[0] % self._count].append(key)
        futures = []
        for worker, share in zip(self._workers, shares, strict=True):
            if share:
                job = _Job(alive, number, pickled, self._decoders[decoder], share, left)
                futures.append(worker.ask(job))
        return futures

    def _pickled(self, one: Originals | Maker) -> bytes:
        """Return an object as bytes for the workers; what they have already goes by its number."""
        stream = io.BytesIO()
        try:
            _Pickler(stream, self._numbers, self._originals, one).dump(one)
        except Exception as error:  # whatever its __reduce__ raises
            raise ConfigError(
                f"run.workers: the transform cannot be pickled for other processes ({error_text(error)})",
                "define its class in a module, or leave run.workers at 0",
            ) from error
        return stream.getvalue()


# -- the process of the run ----------------------------------------------------------------------------------


class _Worker:
    """A process, and the thread of the run that talks to it: sends what is wanted, and waits for it.

    Args:
        shared: What the process has from the start.
        device: Where the run computes.
    """

    def __init__(self, shared: tuple[object, ...], device: torch.device) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        self.process: BaseProcess = multiprocessing.Process(
            target=_serve, args=(theirs, self._connection, shared), daemon=True, name="lw2g images"
        )
        self.process.start()
        theirs.close()  # the process alone has this end, or nobody would see that it has gone
        self._device = device
        self._sent: set[int] = set()
        self._jobs: queue.SimpleQueue[tuple[_Job, Future[Part | Handed]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._talk, daemon=True, name="lw2g images")
        self._thread.start()

    def ask(self, job: _Job) -> Future[Part | Handed]:
        """Return the future of what a job asks for."""
        future: Future[Part | Handed] = Future()
        self._jobs.put((job, future))
        return future

    def end(self) -> None:
        """End process and thread; the process has nothing that could be lost."""
        self._jobs.put(None)
        self.process.kill()
        self.process.join(_PATIENCE)
        if self._thread is not threading.current_thread():  # which may have collected the garbage
            self._thread.join(_PATIENCE)

    def _talk(self) -> None:
        """Send jobs to the process and hand out its answers, until there are no more; runs in a thread."""
        with self._connection:
            while (asked := self._jobs.get()) is not None:
                job, future = asked
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    if self._device.type == "cuda":  # whose memory is pinned for the answer
                        torch.cuda.set_device(self._device)
                    future.set_result(self._answer(job))
                except (EOFError, OSError):  # the other end is closed
                    future.set_exception(self._lost())
                except BaseException as error:  # whoever waits for the answer raises it
                    future.set_exception(error)

    def _answer(self, job: _Job) -> Part | Handed:
        """Send a job and return its answer; images come as raw bytes behind a header with their shapes."""
        # originals go once to each process, which drops those that are no longer alive
        self._sent.intersection_update(job.alive)
        if job.number in self._sent:
            job = attrs.evolve(job, originals=None)
        self._connection.send(job)
        self._sent.add(job.number)
        answer = self._connection.recv()
        if isinstance(answer, Handed):
            return answer
        shapes, dtype, sizes, kept = answer
        total = sum(int(np.prod(shape)) for shape in shapes)
        values = torch.empty(total, dtype=dtype, pin_memory=self._device.type == "cuda")
        unread = _bytes_of(values)
        while unread:
            count = os.readv(self._connection.fileno(), [unread])
            if not count:
                raise EOFError
            unread = unread[count:]
        return Part([position for position, _ in job.keys], Packed(values, shapes), sizes, kept)

    def _lost(self) -> WorkerLostError:
        """Return the error of a process that has ended, with how it ended."""
        self.process.join(_PATIENCE)
        code = self.process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        return WorkerLostError(
            f"a process that decodes images has ended ({how})", "if memory ran out, lower run.workers"
        )


def _end_all(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.end()


class _Pickler(pickle.Pickler):
    """Pickles originals and decoders; an object that the processes have is replaced by its number.

    Args:
        stream: Receives the bytes.
        shared: Numbers of the objects that they were started with, by id.
        originals: Numbers of the originals that they were sent.
        whole: The object to pickle; it is never replaced.
    """

    def __init__(
        self,
        stream: io.BytesIO,
        shared: dict[int, int],
        originals: WeakKeyDictionary[Originals, tuple[int, bytes]],
        whole: object,
    ) -> None:
        super().__init__(stream)
        self._shared = shared
        self._known = originals
        self._whole = whole

    def persistent_id(self, one: Any) -> tuple[str, int] | None:
        """Return what names an object; None for what is pickled."""
        if isinstance(one, Originals) and one is not self._whole:
            return "originals", self._known[one][0]
        if id(one) in self._shared:
            return "shared", self._shared[id(one)]
        return None


# -- the other processes -------------------------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, shared: Sequence[object], originals: dict[int, Originals]) -> None:
        super().__init__(io.BytesIO(content))
        self._places: dict[str, Any] = {"shared": shared, "originals": originals}

    def persistent_load(self, name: tuple[str, int]) -> Any:
        kind, number = name
        return self._places[kind][number]


class _WorkerState:
    """What one of the processes keeps between jobs: originals that are in use, and their decoders."""

    def __init__(self, shared: Sequence[object]) -> None:
        self._shared = shared
        self._originals: dict[int, Originals] = {}
        self._decoders: dict[bytes, Maker] = {}

    def made(self, job: _Job) -> Part:
        """Return the images that a job asks for."""
        gone = self._originals.keys() - set(job.alive)
        for number in gone:
            del self._originals[number]
        if gone:  # decoders refer to them
            self._decoders.clear()
        if job.originals is not None:
            self._originals[job.number] = self._loaded(job.originals)
        if job.decoder not in self._decoders:
            self._decoders[job.decoder] = self._loaded(job.decoder)
        originals = self._originals[job.number]
        originals.left = job.left
        part = self._decoders[job.decoder].make(job.keys)
        return part._replace(kept=job.left - originals.left)

    def _loaded(self, content: bytes) -> Any:
        return _Unpickler(content, self._shared, self._originals).load()


def _serve(connection: Connection, other_end: Connection, shared: Sequence[object]) -> None:
    """Make images until the process of the run is gone, and with it the other end of the connection.

    Args:
        connection: What to talk through.
        other_end: Of the run, which a forked process has inherited.
        shared: What this process has from the start.
    """
    other_end.close()
    torch.set_num_threads(1)
    for number in STOPS:  # a terminal and a scheduler signal all processes, and the first one stops the run
        signal.signal(number, signal.SIG_IGN)
    state = _WorkerState(shared)
    try:
        while True:
            job = connection.recv()
            try:
                part = state.made(job)
            except BaseException as error:  # a stranger's transform, which may raise anything
                connection.send(Handed.of(error))
                continue
            packed = part.packed
            connection.send((packed.shapes, packed.values.dtype, part.sizes, part.kept))
            unsent = _bytes_of(packed.values)
            while unsent:
                unsent = unsent[os.write(connection.fileno(), unsent) :]
    except (EOFError, OSError):
        return


def _bytes_of(values: torch.Tensor) -> memoryview:
    return values.view(torch.uint8).numpy().data
