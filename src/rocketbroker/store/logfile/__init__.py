"""Fixed-size files that are mapped or written, and the queues they form (org.apache.rocketmq.store.logfile)."""
