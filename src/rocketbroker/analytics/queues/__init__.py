"""ConsumeQueue entries: reading plan, proof of completeness, and the records they point to."""
