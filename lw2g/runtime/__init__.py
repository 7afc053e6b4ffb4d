"""What a run stands on: device and precision, checks, events and clocks, processes, what is printed."""
