"""A terminal for programs that show something only there."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def pseudo_terminal() -> Iterator[tuple[int, bytearray]]:
    """Yield a descriptor to write to, and what was written, which is complete after the block."""
    ours, theirs = os.openpty()
    shown = bytearray()

    def read() -> None:
        with suppress(OSError):  # how Linux says that nobody has the other side open any more
            while data := os.read(ours, 1 << 16):
                shown.extend(data)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield theirs, shown
    finally:
        os.close(theirs)
        thread.join()
        os.close(ours)
