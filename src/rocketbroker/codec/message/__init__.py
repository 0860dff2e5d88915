"""Messages as bytes: CommitLog records, their properties, ids, batches and hashes."""
