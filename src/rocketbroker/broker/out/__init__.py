"""Requests to name servers, and the registration there (org.apache.rocketmq.broker.out)."""
