"""Reading while a broker writes: every result is a whole beginning of what is written in the end."""

import mmap
import threading
from pathlib import Path

from rocketbroker.analytics import DecodeReport, read_store
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.slow_store_reader import slow_rows


def write_by_pieces(final: bytes, path: Path, reads: threading.Semaphore) -> None:
    """Let the bytes of a log appear in a mapped file 37 at a time, some 20,000 during each read."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        for at in range(0, len(final), 37):
            if at % (37 * 541) == 0:
                assert reads.acquire(timeout=60)
            piece = final[at : at + 37]
            mapped[at : at + len(piece)] = piece


def test_each_read_gives_a_beginning_of_the_log(tmp_path: Path) -> None:
    source = CommitLogWriter(tmp_path / "source", file_size=1 << 20)
    source.append_many(2_000)
    final, expected = source.records[0][0].read_bytes(), slow_rows(source.directory)
    live = tmp_path / "live" / "commitlog" / ("0" * 20)
    live.parent.mkdir(parents=True)
    live.write_bytes(bytes(len(final)))
    reads = threading.Semaphore(0)
    writer = threading.Thread(target=write_by_pieces, args=(final[: source.end], live, reads))
    counts: list[int] = []
    writer.start()
    try:
        while not counts or counts[-1] < len(expected):
            reads.release()
            ending = not writer.is_alive()
            report = DecodeReport()
            columns = ["physical_offset", "topic", "body", "keys"]
            rows = [row for batch in read_store(live.parents[1], columns, report=report) for row in batch.to_pylist()]
            assert rows == [{name: row[name] for name in columns} for row in expected[: len(rows)]]
            assert report.broken == []
            counts.append(len(rows))
            assert not ending or counts[-1] == len(expected)
    finally:
        reads.release(1_000)
        writer.join()
    assert counts == sorted(counts)
    # How many of the states in between are seen is up to the scheduler.
    assert len(set(counts)) > 2
