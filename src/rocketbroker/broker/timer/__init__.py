"""Timer messages: delivered at any time, not at a level's delay (org.apache.rocketmq.store.timer)."""
