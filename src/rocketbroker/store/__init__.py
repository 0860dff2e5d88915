"""CommitLog, ConsumeQueue and IndexFile, and the services that maintain them. No network, no system topics."""
