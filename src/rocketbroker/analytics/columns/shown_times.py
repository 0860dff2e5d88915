"""Times that can be displayed, in ms since 1970: the years 1 to 9999, as in timestamps of Spark and Python.

A producer may send any int64, and a damaged record may contain any.
"""

from typing import Final

FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
