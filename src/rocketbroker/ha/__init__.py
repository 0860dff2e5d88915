"""Replication of the CommitLog from a master to its slaves (org.apache.rocketmq.store.ha)."""
