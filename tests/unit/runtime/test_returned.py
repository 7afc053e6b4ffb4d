"""What a plugin returns is looked at before it is used, and a line names the plugin."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import lw2g
from lw2g.errors import ContractError
from lw2g.runtime.returned import stream_of, transforms_of
from lw2g_testing.tiny import TinyBenchmark, TinyBenchmarkConfig

WRONG = (None, [], 5, "tasks", {})


@pytest.mark.parametrize("returned", WRONG, ids=repr)
def test_a_benchmark_that_returns_no_stream_is_named(tmp_path: Any, returned: Any) -> None:
    """A run says whose method returned what, and what it should return; nothing is left behind."""

    class Mine:
        def stream(self) -> Any:
            return returned

        def transforms(self, *_: Any) -> Any:
            return None

    with pytest.raises(ContractError) as caught:
        lw2g.run(benchmark=Mine(), baseline="simple-cil", out=tmp_path / "run")
    line = Mine.stream.__code__.co_firstlineno
    said = f"this program: benchmark 'local-mine', stream: returned {returned!r} "
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith(f"{Path(__file__).name}:{line}); return a TaskStream")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("returned", WRONG, ids=repr)
def test_streams_and_transforms_of_another_type_are_refused(returned: Any) -> None:
    """Every place that asks a benchmark for them goes through these two."""
    mine: Any = SimpleNamespace(stream=lambda: returned, transforms=lambda *_: returned)
    known: Any = SimpleNamespace(image_size=32, mean=(), std=())
    with pytest.raises(ContractError, match=r"^benchmark 'mine', stream: returned .*; return a TaskStream$"):
        stream_of(mine, "mine")
    with pytest.raises(
        ContractError, match=r"^benchmark 'mine', transforms: returned .*; return Transforms$"
    ):
        transforms_of(mine, "mine", known)


@pytest.mark.parametrize("wrong", [{"fingerprint": None}, {"notes": 5}, {"deviations": (1,)}, {"domain": 3}])
def test_texts_of_a_stream_are_texts(wrong: dict[str, Any]) -> None:
    """What only a record or a terminal shows is looked at before anything is learned."""
    stream = TinyBenchmark(TinyBenchmarkConfig()).stream()
    if "domain" in wrong:
        wrong = {"tasks": tuple(attrs.evolve(task, **wrong) for task in stream.tasks)}
    benchmark: Any = SimpleNamespace(stream=lambda: attrs.evolve(stream, **wrong))
    with pytest.raises(ContractError, match=r"^benchmark 'mine', stream: \w+ holds .*; give texts$"):
        stream_of(benchmark, "mine")


def test_no_class_is_called_by_an_empty_text() -> None:
    """Nobody could name it in an option or find it in a table."""
    stream = TinyBenchmark(TinyBenchmarkConfig()).stream()
    names = ("", *stream.class_names[1:])
    benchmark: Any = SimpleNamespace(stream=lambda: attrs.evolve(stream, class_names=names))
    with pytest.raises(ContractError, match=r"stream: class_names holds .*; give texts"):
        stream_of(benchmark, "mine")
