"""Files of a store, local or remote, and windows of the CommitLog."""
