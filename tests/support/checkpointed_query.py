"""A streaming query driven without Spark: progress goes through JSON, parts of batches through pickle."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from rocketbroker.analytics.spark.source_options import source_options
from rocketbroker.analytics.spark.stream_reader import MessageStreamReader

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("body", pa.binary()),
        ("keys", pa.string()),
    ]
)
COLUMNS = tuple(SCHEMA.names)


class Query:
    """A query with a checkpoint: each batch is planned, read, and sometimes planned and read again."""

    def __init__(self, stores: Path | str, **options: str) -> None:
        self.options = source_options({"path": str(stores), "splitSize": "3000", **options})
        self.rows: list[dict[str, Any]] = []
        self.reader: MessageStreamReader
        self.restart()
        self.progress: dict[str, Any] = through_json(self.reader.initialOffset())

    def restart(self) -> None:
        """As a query that is started again: nothing is left but the checkpoint."""
        self.reader = MessageStreamReader(pickle.loads(pickle.dumps(self.options)), SCHEMA)

    def restart_with(self, stores: Path | str, **options: str) -> None:
        """As a query that is started again from its checkpoint with other options."""
        self.options = source_options({"path": str(stores), **options})
        self.restart()

    def trigger(self, *, again: bool = False) -> bool:
        """Run a micro-batch; false when there is nothing new."""
        end = through_json(self.reader.latestOffset(self.progress, self.reader.getDefaultReadLimit()))
        if end == self.progress:
            return False
        rows = list(self._batch(end))
        if again:
            self.restart()
            assert list(self._batch(end)) == rows
        self.rows += rows
        self.reader.commit(end)
        self.progress = end
        return True

    def run(self) -> list[dict[str, Any]]:
        """Run until there is nothing new; all rows so far."""
        while self.trigger():
            pass
        return self.rows

    def _batch(self, end: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for part in self.reader.partitions(self.progress, end):
            for batch in self.reader.read(pickle.loads(pickle.dumps(part))):
                assert batch.schema.equals(SCHEMA)
                yield from batch.to_pylist()


def through_json(progress: Any) -> Any:
    """Return a progress as it comes out of a checkpoint."""
    return json.loads(json.dumps(progress))
