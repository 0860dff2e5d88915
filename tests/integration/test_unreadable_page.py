"""A mapped page that cannot be had kills the broker by SIGBUS; the next start has all that was acknowledged.

A file that is cut short under the mapping stands for the disk: a store into it has no page either.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stores import make_store, message, read_queue

COUNT = 20


@pytest.mark.proves("Damage", "a death by SIGBUS")
async def test_a_process_that_dies_of_a_mapped_page_loses_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await asyncio.to_thread(die, root)

    store = make_store(root, flush_disk_type="SYNC_FLUSH")
    await store.start()
    for queue_id in range(2):
        bodies = [one.body for one in read_queue(store, "Topic", queue_id)]
        assert bodies[: COUNT // 2] == [b"%d" % number for number in range(queue_id, COUNT, 2)]
        assert store.appender.put_message(message(queue_id=queue_id)).queue_offset == len(bodies)
    await store.stop()


def die(root: Path) -> None:
    """Run a process that stores messages and then loses a page of a queue."""
    command = [sys.executable, "-m", "tests.support.dying_store", str(root), str(COUNT)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{COUNT}\n"
        os.truncate(root / "consumequeue" / "Topic" / "0" / f"{0:020d}", 0)
        output, errors = process.communicate("\n", timeout=60)

    assert (process.returncode, output) == (-signal.SIGBUS, "")
    assert "Fatal Python error: Bus error" in errors, "it says where"
