"""Syncing the store to disk, the checkpoint, and the reasons to reject writes."""
