"""Which times can be shown: the years 1 to 9999, as far as Spark's timestamps and Python's go, in ms since 1970.

A producer may send any int64, and a damaged record may have any.
"""

from typing import Final

FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
