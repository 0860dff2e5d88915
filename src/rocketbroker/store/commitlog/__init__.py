"""The CommitLog: appending records, reading them by offset, walking them."""
