"""SQL92 filters on message properties: grammar, evaluation, compiled filters (org.apache.rocketmq.filter)."""
