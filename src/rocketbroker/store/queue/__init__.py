"""ConsumeQueues: where each message of a queue lies in the CommitLog (org.apache.rocketmq.store.queue)."""
