"""Opening a store: the end of the log, the ends of the queues, and the report of what was repaired."""
