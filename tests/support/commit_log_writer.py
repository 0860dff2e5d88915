"""Writes commit logs for tests of readers: small files, any mix of records, closed by BLANKs as a broker does."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_decoder import encode_blank, encode_record
from rocketbroker.codec.storefile.record_search import fits
from rocketbroker.codec.storefile.store_file import offset_to_file_name

V4_HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
V6_HOST = bytes([0xFD] + [0] * 14 + [1]) + (10911).to_bytes(4, "big")


@dataclass
class CommitLogWriter:
    """Appender of records below ``root``/commitlog; ``records`` has file path, position and size of each."""

    root: Path
    file_size: int = 1 << 16
    records: list[tuple[Path, int, int]] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    @property
    def directory(self) -> Path:
        return self.root / "commitlog"

    def append(
        self,
        body: bytes = b"body",
        topic: bytes = b"Topic",
        properties: bytes = b"TAGS\x01a\x02",
        *,
        born_host: bytes = V4_HOST,
        store_host: bytes = V4_HOST,
        **fields: int,
    ) -> bytes:
        """Append one record and return it."""
        record = self._encode(self.end, body, topic, properties, born_host, store_host, fields)
        free = self.file_size - self.end % self.file_size
        if not fits(len(record), free):
            self._write(encode_blank(free))
            self.end += free
            record = self._encode(self.end, body, topic, properties, born_host, store_host, fields)
        path, position = self._write(record)
        self.records.append((path, position, len(record)))
        self.end += len(record)
        return record

    def append_many(self, count: int, seed: int = 1) -> None:
        """Append ``count`` records of all kinds."""
        chance = random.Random(seed)
        for number in range(count):
            topic = f"Topic{number % 7}" if number % 50 else "%RETRY%" + "g" * 140
            self.append(
                chance.randbytes(chance.randrange(300)),
                topic.encode(),
                f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01k{number} é\x02TAGS\x01t{number % 3}\x02".encode()
                if number % 9
                else b"",
                born_host=V6_HOST if number % 11 == 5 else V4_HOST,
                store_host=V6_HOST if number % 13 == 7 else V4_HOST,
                queue_id=number % 4,
                queue_offset=number // 4,
                flag=-number,
                reconsume_times=number % 3,
                prepared_transaction_offset=number % 5,
            )

    def _encode(
        self, at: int, body: bytes, topic: bytes, properties: bytes, born: bytes, store: bytes, fields: dict[str, int]
    ) -> bytes:
        values = {"queue_id": 0, "flag": 0, "queue_offset": 0, "sys_flag": 0, "reconsume_times": 0} | fields
        values["sys_flag"] |= host_flags(born, store)
        values.setdefault("prepared_transaction_offset", 0)
        values.setdefault("born_timestamp", 1_795_255_162_829)
        values.setdefault("store_timestamp", 1_795_255_162_876)
        return encode_record(
            physical_offset=at,
            born_host=born,
            store_host=store,
            body=body,
            topic_bytes=topic,
            properties_bytes=properties,
            **values,
        )

    def _write(self, data: bytes) -> tuple[Path, int]:
        position = self.end % self.file_size
        path = self.directory / offset_to_file_name(self.end - position)
        if not path.exists():
            path.touch()
            with path.open("r+b") as file:
                file.truncate(self.file_size)
        with path.open("r+b") as file:
            file.seek(position)
            file.write(data)
        return path, position


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Damage a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
