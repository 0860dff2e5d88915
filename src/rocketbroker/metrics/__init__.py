"""Figures of a server's parts, its health, and the exporters of both."""
