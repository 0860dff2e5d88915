"""Types of fields and arguments: Java's numbers, and bytes that can be read without a copy."""

from typing import Annotated, TypeAlias

from msgspec import Meta

# java.lang.Integer, 32 bits.
Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
# java.lang.Long, 64 bits.
Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

#: Bytes that can be read without a copy. A mapped file is passed as ``memoryview(mapping)``.
ReadableBuffer: TypeAlias = bytes | bytearray | memoryview
