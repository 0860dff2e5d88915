"""Receive buffer of one connection.

All connections of an endpoint read into one shared buffer, because one read event is handled completely before the
next begins. Each connection keeps its own incomplete frame. Memory for a large frame grows with the bytes received,
never with the length that the peer claims.
"""

SHARED_SIZE = 256 * 1024


class ReceiveBuffer:
    """Provide room for the next read and keep the incomplete frame that a read leaves.

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
        """Memory of the incomplete frame, in bytes."""
        return len(self._rest) if self._large is None else len(self._large)

    @property
    def received_bytes(self) -> int:
        """Bytes received of the incomplete frame."""
        return len(self._rest) if self._large is None else self._length

    def room(self) -> memoryview:
        """Return the memory that the next read fills; never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._length :]
        rest = self._rest
        if not rest:
            return self._shared
        self._shared[: len(rest)] = rest
        return self._shared[len(rest) :]

    def received(self, count: int) -> memoryview:
        """Return all unconsumed bytes after ``count`` bytes were read into ``room()``."""
        if self._large is not None:
            self._length += count
            return memoryview(self._large)[: self._length]
        return self._shared[: len(self._rest) + count]

    def keep(self, rest: memoryview, needed: int) -> None:
        """Keep ``rest``, the received part of a frame that has ``needed`` bytes when complete."""
        if needed <= len(self._shared) or (self._large is None and 2 * len(rest) <= len(self._shared)):
            # Large frames start small too: a peer that claims much and sends little costs little.
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
        """Forget all bytes: they were consumed."""
        self._rest = b""
        self._large = None
