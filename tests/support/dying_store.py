"""A process with a store that dies by SIGBUS of a mapped page, as where the disk gives EIO for one.

    python -m tests.support.dying_store STORE COUNT

It stores messages and prints how many are on disk. At a line on its input it stores one more.
"""

import asyncio
import faulthandler
import sys
from pathlib import Path

from tests.support.stores import flushed, make_store, message


async def main(root: Path, count: int) -> None:
    """Store messages, wait for a line, and store one more."""
    faulthandler.enable()
    store = make_store(root, flush_disk_type="SYNC_FLUSH")
    await store.start()
    for number in range(count):
        result = store.appender.put_message(message(b"%d" % number, queue_id=number % 2))
    assert await flushed(store, result) == ""
    print(count, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await flushed(store, store.appender.put_message(message(b"one more")))
    print("alive", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
