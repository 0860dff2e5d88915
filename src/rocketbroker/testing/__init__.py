"""Launchers for tests that no command of the product offers."""
