"""Allocation of queues to the consumers of a group."""
