"""What every module may use: help from docstrings, notes, texts, spelling, and what this machine has."""
