"""The parts of ``scripts/on_gpu.py``, the most informative first."""

from gpu import agreement, cells, costs, decisive, machine, pipeline, real, suites, training
from gpu.lab import Part

PARTS = (
    Part(name="machine", minutes=0.5, measurements=machine.measurements),
    Part(name="decisive", minutes=3, measurements=decisive.measurements),
    Part(name="cells", minutes=60, measurements=cells.measurements),
    Part(name="agreement", minutes=3, measurements=agreement.measurements),
    Part(name="training", minutes=8, measurements=training.measurements),
    Part(name="pipeline", minutes=2, measurements=pipeline.measurements),
    Part(name="costs", minutes=3, measurements=costs.measurements),
    Part(name="tests", minutes=4, measurements=suites.measurements),
    Part(name="real", minutes=5, measurements=real.measurements),
)
