"""CommitLog, ConsumeQueue and IndexFile, and the services that keep them. No network, no RocketMQ topics' meaning."""
