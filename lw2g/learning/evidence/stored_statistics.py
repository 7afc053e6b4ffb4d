"""The statistics of old tasks that measures have stored, for a run and its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Set

from torch import Tensor

__all__ = ["StoredStatistics"]


class StoredStatistics:
    """The statistics that measures have stored, by measure and set; on the CPU."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, int], dict[str, Tensor]] = {}

    def put(self, measure: str, set_id: int, values: Mapping[str, Tensor]) -> None:
        """Store in place of what was there."""
        # kept on the CPU: there are as many as sets, and they are read once a task
        kept = {name: value.detach().cpu().contiguous() for name, value in values.items()}
        self._values[measure, set_id] = kept

    def of(self, measure: str) -> dict[int, Mapping[str, Tensor]]:
        """Return what a measure has stored, by set."""
        return {set_id: values for (name, set_id), values in self._values.items() if name == measure}

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything as ``"<measure>/<set>/<name>"``."""
        state: dict[str, Tensor] = {}
        for (measure, set_id), values in self._values.items():
            for name, value in values.items():
                state[f"{measure}/{set_id}/{name}"] = value
        return state

    def load_state_dict(self, state: Mapping[str, Tensor], names: Set[str]) -> None:
        """Restore what :meth:`state_dict` returned, of the named measures."""
        self._values = {}
        for key, value in state.items():
            measure, set_id, name = key.split("/", 2)
            if measure in names:
                self._values.setdefault((measure, int(set_id)), {})[name] = value
