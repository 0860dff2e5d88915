"""Retention, disk watermarks and the deletion of topics."""
