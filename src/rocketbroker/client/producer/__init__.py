"""Producers: sends, transactions, requests with replies."""
