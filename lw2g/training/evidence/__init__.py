"""What a new task looks like before it is learned, and what every set would mean to it."""
