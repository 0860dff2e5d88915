"""The bytes of one connection between two reads.

All connections of an endpoint read into one shared buffer, since a read event is handled whole before the next one
begins. What is left of it, an incomplete frame, is kept by the connection itself, and memory for a large frame grows
with the bytes that really came, never with the length that the peer claims.
"""

SHARED_SIZE = 256 * 1024


class ReceiveBuffer:
    """Hands out where the next read goes and keeps the incomplete frame that a read leaves.

    Args:
        shared: the buffer that all connections of the endpoint read into.
    """

    __slots__ = ("_large", "_length", "_rest", "_shared")

    def __init__(self, shared: memoryview) -> None:
        self._shared = shared
        self._rest = b""
        self._large: bytearray | None = None
        self._length = 0

    @property
    def held(self) -> int:
        """Bytes of memory that the incomplete frame takes."""
        return len(self._rest) if self._large is None else len(self._large)

    @property
    def received_bytes(self) -> int:
        """Bytes of the incomplete frame that came."""
        return len(self._rest) if self._large is None else self._length

    def room(self) -> memoryview:
        """Where the next read goes; never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._length :]
        rest = self._rest
        if not rest:
            return self._shared
        self._shared[: len(rest)] = rest
        return self._shared[len(rest) :]

    def received(self, count: int) -> memoryview:
        """All bytes not consumed yet, after ``count`` bytes were read into ``room()``."""
        if self._large is not None:
            self._length += count
            return memoryview(self._large)[: self._length]
        return self._shared[: len(self._rest) + count]

    def keep(self, rest: memoryview, needed: int) -> None:
        """Keep an incomplete frame: ``rest`` of what ``received`` gave, ``needed`` bytes in all when complete."""
        if needed <= len(self._shared) or (self._large is None and 2 * len(rest) <= len(self._shared)):
            # Also the first bytes of a large frame: a peer that claims much and sends little costs little.
            self._rest = bytes(rest)
            self._large = None
            return
        if self._large is None or len(rest) == len(self._large):
            grown = bytearray(min(needed, 2 * len(rest)))
            grown[: len(rest)] = rest
            self._large = grown
        elif len(rest) != self._length:
            self._large[: len(rest)] = bytes(rest)
        self._length = len(rest)
        self._rest = b""

    def clear(self) -> None:
        """All was consumed."""
        self._rest = b""
        self._large = None
