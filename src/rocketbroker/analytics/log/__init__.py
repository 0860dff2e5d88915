"""The CommitLog cut into splits, walked and decoded."""
