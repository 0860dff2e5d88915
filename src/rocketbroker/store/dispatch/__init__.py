"""Dispatch of stored records to the ConsumeQueues and the index."""
