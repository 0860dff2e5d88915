"""Copies of stored messages, and the topic that a redirected message is bound for."""
