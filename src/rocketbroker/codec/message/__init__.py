"""Messages as bytes: the commit-log record, its properties, ids, batches and hashes."""
