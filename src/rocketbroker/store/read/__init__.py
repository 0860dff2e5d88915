"""Reading messages by queue offset, by key and by CommitLog offset."""
