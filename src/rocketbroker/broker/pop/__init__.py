"""POP consumption: open check points, their return after the invisible time, and their recovery."""
