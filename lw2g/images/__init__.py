"""Images on their way to the model: decoded once, kept, augmented, in batches."""
