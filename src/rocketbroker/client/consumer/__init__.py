"""Parts of consumers that share the queues of their group."""
