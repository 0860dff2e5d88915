"""SQL92 filters of consumers (org.apache.rocketmq.broker.filter)."""
