"""What a store holds, as tables: each gives Arrow batches by itself, and the Spark format reads them by name."""
