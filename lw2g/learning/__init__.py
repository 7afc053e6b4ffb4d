"""Learning one task, and answering for the images of all seen ones."""
