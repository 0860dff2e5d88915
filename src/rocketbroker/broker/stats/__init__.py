"""Counts of messages put and got (org.apache.rocketmq.store.stats)."""
