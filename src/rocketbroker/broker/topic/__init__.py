"""Topics and subscription groups (org.apache.rocketmq.broker.topic)."""
