"""Delay levels (org.apache.rocketmq.broker.schedule)."""
