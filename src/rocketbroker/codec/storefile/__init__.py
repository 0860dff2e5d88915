"""Layouts of the files in a store directory."""
