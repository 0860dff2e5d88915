"""Checks of ``mqadmin doctor`` by subject, and the facts that they examine."""
