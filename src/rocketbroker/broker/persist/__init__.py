"""JSON tables on disk, and acknowledged changes to them."""
