"""Where a run computes: device, precision, determinism and memory."""
