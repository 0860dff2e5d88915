"""Tables of a store, as Arrow batches; the Spark format reads them by name."""
