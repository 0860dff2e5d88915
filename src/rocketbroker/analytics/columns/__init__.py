"""Columns of messages: decoding, projection and selection."""
