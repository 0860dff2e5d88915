"""Transactions: half messages, what ends them, and the check-back (org.apache.rocketmq.broker.transaction)."""
