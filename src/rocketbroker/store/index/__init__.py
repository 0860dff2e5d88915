"""IndexFiles: messages by key and unique id (org.apache.rocketmq.store.index)."""
