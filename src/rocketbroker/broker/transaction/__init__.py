"""Transactions: half messages, their end, and the check-back (org.apache.rocketmq.broker.transaction)."""
