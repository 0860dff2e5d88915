"""A topic of a running broker that a streaming query copies into a table, through kills of both at seeded moments."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from pyspark.sql import SparkSession

from tests.support.job_frames import SMALL_SESSION
from tests.support.our_servers import OurServers, launch_serving
from tests.support.slow_store_reader import slow_rows
from tests.support.steady_load import SteadyLoad
from tests.support.streaming_query import (
    COLUMNS,
    FOLLOWED,
    program,
    run_to_end,
    start_pulls,
    start_query,
    written_batches,
)
from tests.support.waiting import wait_until

LIMIT_S = 400  # a machine may have much else to do
LOG_FILES: Final = {"mappedFileSizeCommitLog": 1 << 20}
SOURCES = ("rocketmq_store", "rocketmq")


class KilledStream:
    """A broker, and a query that follows its topic by one of our two sources into a table of any form."""

    def __init__(
        self,
        servers: OurServers,
        source: str,
        form: str = "parquet",
        settings: Mapping[str, str] = SMALL_SESSION,
        seed: int = 0,
    ) -> None:
        self._servers, self._form, self._settings = servers, form, settings
        self._seed, self.random = seed, Random(seed)
        self.out, self.checkpoint = servers.home / "out", servers.home / "checkpoint"
        self._namesrv = servers.namesrv()
        self._broker = launch_serving(servers, self._namesrv, LOG_FILES)
        self.commit_log = self._broker.store / "commitlog"
        self._is_store = source == "rocketmq_store"
        self._source = f"broker-a={self._broker.store}" if self._is_store else self._namesrv.address
        self.load = SteadyLoad(self._namesrv.address)

    def kill_both(self, rounds: int) -> None:
        """Kill the broker under the query, and then the query, while messages are sent."""
        with self.load:
            for number in range(rounds):
                with self.program() as process:
                    self.wait_for_batch(process)
                    self.kill_broker()
                    self.wait_for_batch(process)
                    self.wait_for_moment(process, number)
                print("killed with", {name: count() for name, count in self._steps().items()})
            self.load.wait_for(200)

    def kill_broker(self) -> None:
        """Kill the broker after some more messages, and start it again."""
        self.load.wait_for(self.random.randrange(1, 150))
        self._broker.kill()
        self._broker = launch_serving(self._servers, self._namesrv, LOG_FILES, self._broker)

    @contextmanager
    def program(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the query as a program, which is killed at the end of the block with its JVM and Python workers."""
        process = program(self._source, self.out, self.checkpoint, self._form, self._settings)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait_for_batch(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the program has written one more micro-batch."""
        self._wait_for_more(process, lambda: written_batches(self.out), 0.05)

    def finish(self, spark: SparkSession) -> None:
        """Write what is missing, by a query that ends."""
        start: Callable[..., Any] = start_query if self._is_store else start_pulls
        settings = {"form": self._form, "available_now": True}
        run_to_end(lambda: start(spark, self._source, self.out, self.checkpoint, **settings), LIMIT_S)

    def expected(self) -> list[tuple[Any, ...]]:
        """Return the rows of the log, sorted, each acknowledged message among them."""
        stored = slow_rows(self.commit_log, "broker-a")
        rows = sorted(tuple(row[name] for name in COLUMNS) for row in stored if row["topic"] == FOLLOWED)
        assert {b"%08d" % number for number in range(self.load.sent)} <= {row[-1][:8] for row in rows}
        return rows

    def wait_for_moment(self, process: subprocess.Popen[bytes], number: int) -> None:
        """Wait for a step of a micro-batch, or until some more messages were sent; seed 0 begins with the table.

        A batch whose rows are in the table, and whose end is not noted, is planned again: the sink has to know it.
        """
        moments = [*self._steps().items(), ("sent", None)]
        name, count = moments[(self._seed + number) % len(moments)]
        print("kill at", name)
        if count is None:
            self.load.wait_for(self.random.randrange(1, 150))
        else:
            self._wait_for_more(process, count, 0.001)

    def _steps(self) -> dict[str, Callable[[], int]]:
        """Return counts of what a micro-batch leaves: its rows in the table, its plan, its end."""
        return {
            "table": lambda: written_batches(self.out),
            "offsets": lambda: _entries(self.checkpoint / "offsets"),
            "commits": lambda: _entries(self.checkpoint / "commits"),
        }

    def _wait_for_more(self, process: subprocess.Popen[bytes], count: Callable[[], int], interval_s: float) -> None:
        known = count()
        wait_until(lambda: count() > known or process.poll() is not None, "no further micro-batch", LIMIT_S, interval_s)
        assert process.poll() is None, "the program ended"


def _entries(folder: Path) -> int:
    return max((int(entry.name) + 1 for entry in folder.glob("[0-9]*")), default=0)
