"""Images and rows of features, from their files to a batch: found, decoded once, kept, augmented."""
