"""Turns names, files and options into one complete experiment; nothing here imports torch."""
