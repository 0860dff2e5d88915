"""Tables of a store: each gives Arrow batches by itself, and the Spark format reads them by name."""
