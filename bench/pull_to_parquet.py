"""Our client pulls a topic into one Parquet file, a task a queue, as java/PullToParquet.java does with threads.

    python -m bench.pull_to_parquet NAMESRV TOPIC

prints the line of ``bench.analytics_cases``.
"""

import asyncio
import sys
import tempfile
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from bench.analytics_cases import tell
from bench.client_loads import run_loop
from rocketbroker.client import PullConsumer
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue

SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "queue_id": pa.int32(),
        "queue_offset": pa.int64(),
        "store_timestamp": pa.int64(),
        "body": pa.binary(),
    }
)
_ROW_GROUP: Final = 20_000


def pull_to_parquet(namesrv: str, topic: str) -> int:
    """Pull a topic of which each queue has messages, and return their number in the file."""

    async def pull_all(writer: pq.ParquetWriter) -> None:
        async with PullConsumer("bench_pull", namesrv) as consumer:
            queues = await consumer.fetch_subscribe_queues(topic)
            await asyncio.gather(*(_pull_queue(consumer, queue, writer) for queue in queues))

    with tempfile.TemporaryFile(prefix="rocketbroker-bench-") as file:
        with pq.ParquetWriter(file, SCHEMA) as writer:
            run_loop(pull_all(writer))
        return int(pq.read_metadata(file).num_rows)


async def _pull_queue(consumer: PullConsumer, queue: MessageQueue, writer: pq.ParquetWriter) -> None:
    rows, offset, ended = list[MessageExt](), 0, False
    while not ended:
        found = await consumer.pull(queue, offset)
        rows += found.messages
        offset, ended = found.next_begin_offset, found.next_begin_offset >= found.max_offset
        if ended or len(rows) >= _ROW_GROUP:
            columns = [[getattr(row, name) for row in rows] for name in SCHEMA.names]
            writer.write_table(pa.table(columns, schema=SCHEMA))
            rows.clear()


if __name__ == "__main__":
    tell("pull_python", partial(pull_to_parquet, *sys.argv[1:]))
