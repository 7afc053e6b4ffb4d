"""Sweeps: grids of runs; each run has its own process and directory. Nothing here imports torch."""
