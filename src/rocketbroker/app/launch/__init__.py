"""Launchers of several servers: in one process, as supervised processes, as a layout, for the demo."""
