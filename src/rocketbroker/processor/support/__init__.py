"""Checks, limits and answers that request codes share."""
