"""ConsumeQueues: the place in the CommitLog of each message of a queue (org.apache.rocketmq.store.queue)."""
