"""Access control 2.0: users, policies, decisions, signatures, and their table on disk (org.apache.rocketmq.auth)."""
