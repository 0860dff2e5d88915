"""Figures of a server's parts for Prometheus, its health, and the HTTP port of both."""
