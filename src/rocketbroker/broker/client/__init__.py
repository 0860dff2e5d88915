"""Connected producers and consumers, their groups and their locks (org.apache.rocketmq.broker.client)."""
