"""The buffer types every decoder takes."""

from typing import TypeAlias

#: What can be read without a copy. A mapped file is passed as ``memoryview(mapping)``.
ReadableBuffer: TypeAlias = bytes | bytearray | memoryview
