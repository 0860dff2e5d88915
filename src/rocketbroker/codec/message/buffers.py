"""Buffer types that every decoder takes."""

from typing import TypeAlias

#: Bytes that can be read without a copy. A mapped file is passed as ``memoryview(mapping)``.
ReadableBuffer: TypeAlias = bytes | bytearray | memoryview
