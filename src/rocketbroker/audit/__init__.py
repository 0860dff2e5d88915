"""Offline check of the files of a store."""
