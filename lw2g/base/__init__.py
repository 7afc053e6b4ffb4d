"""What every room above needs: checks, events and clocks, processes, the boundary to components."""
