"""Errors, clock, lifecycle and configuration, for use by all rooms."""
