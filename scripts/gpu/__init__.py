"""The parts of ``scripts/on_gpu.py``, those that decide first."""

from gpu import cells, steps
from gpu.lab import Part

PARTS = (
    Part(name="steps", measurements=steps.measurements),
    Part(name="cells", measurements=cells.measurements),
)
