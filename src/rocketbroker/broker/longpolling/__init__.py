"""Pulls and pops held until messages arrive (org.apache.rocketmq.broker.longpolling)."""
