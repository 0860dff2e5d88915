"""Java number types in headers and bodies: a value out of range is a mistyped field, not a larger number."""

from typing import Annotated

from msgspec import Meta

# java.lang.Integer, 32 bits.
Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
# java.lang.Long, 64 bits.
Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
