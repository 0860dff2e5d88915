"""ConsumeQueue entries: the plan, the proof and the records they point to."""
