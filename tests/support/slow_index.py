"""Index files as Java writes them, one key at a time by struct alone: the reference for batches of keys."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice


def hits(steps: Iterable[int | None], limit: int | None = None) -> list[int]:
    """Return the offsets that the steps of a search of an index give."""
    return list(islice((offset for offset in steps if offset is not None), limit))


def java_hash(text: str) -> int:
    """Return the String.hashCode of a text."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@dataclass
class SlowIndex:
    """The files of an index, as bytes; ``put`` enters a key and begins a new file when one is full."""

    slot_count: int
    entry_count: int
    files: list[bytearray] = field(default_factory=list)

    def put_message(
        self, topic: str, offset: int, stored: int, unique_key: str | None, keys: str | None, tags: str | None
    ) -> None:
        """Enter the keys of a message in the order that release 5.5.0 has."""
        if unique_key:
            self.put(f"{topic}#{unique_key}", offset, stored)
        for key in (keys or "").split(" "):
            if key:
                self.put(f"{topic}#{key}", offset, stored)
        if tags:
            self.put(f"{topic}#T#{tags}", offset, stored)

    def put(self, key: str, offset: int, stored: int) -> None:
        """Enter one key."""
        if not self.files or self._header()[5] >= self.entry_count:
            self.files.append(bytearray(40 + self.slot_count * 4 + self.entry_count * 20))
            struct.pack_into(">i", self.files[-1], 36, 1)
        data = self.files[-1]
        begin, end, begin_offset, _, used, number = self._header()
        if number == 1:
            begin, begin_offset = stored, offset
        key_hash = abs(java_hash(key))
        key_hash = 0 if key_hash == 1 << 31 else key_hash
        slot = 40 + key_hash % self.slot_count * 4
        (previous,) = struct.unpack_from(">i", data, slot)
        difference = min(max(stored - begin, 0) // 1000, 2**31 - 1)
        entry = 40 + self.slot_count * 4 + number * 20
        struct.pack_into(">iqii", data, entry, key_hash, offset, difference, previous)
        struct.pack_into(">i", data, slot, number)
        struct.pack_into(
            ">qqqqii", data, 0, begin, max(stored, end), begin_offset, offset, used + (previous == 0), number + 1
        )

    def _header(self) -> tuple[int, int, int, int, int, int]:
        header: tuple[int, int, int, int, int, int] = struct.unpack_from(">qqqqii", self.files[-1])
        return header
