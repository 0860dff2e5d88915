"""Pulls held until messages arrive (org.apache.rocketmq.broker.longpolling)."""
