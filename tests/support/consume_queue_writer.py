"""Writer of the ConsumeQueues of a fully dispatched CommitLog."""

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_queues(root: Path, rows: Iterable[Mapping[str, Any]], entries_in_file: int = 100) -> None:
    """Write the entries of ``rows`` at their queue offsets; zeros fill the rest of the files."""
    queues: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
    for row in rows:
        entry = struct.pack(">qiq", row["physical_offset"], row["size"], 0)
        queues[row["topic"], row["queue_id"]][row["queue_offset"]] = entry
    for (topic, queue_id), entries in queues.items():
        folder = root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True, exist_ok=True)
        for first in range(min(entries) // entries_in_file * entries_in_file, max(entries) + 1, entries_in_file):
            filler = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
            data = b"".join(
                entries.get(number, filler if number < min(entries) else bytes(20))
                for number in range(first, first + entries_in_file)
            )
            (folder / f"{first * 20:020d}").write_bytes(data)
