"""Checks the files of a store that no broker has open: reads them, changes nothing, and says what is wrong."""
