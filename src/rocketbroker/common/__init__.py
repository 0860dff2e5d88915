"""Errors, clock, lifecycle and configuration: what every other room may use."""
