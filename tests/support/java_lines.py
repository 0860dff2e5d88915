"""Parsers for the output of the Java drivers; Messages.java and Produce.java define the columns."""

import zlib
from typing import NamedTuple


class Sent(NamedTuple):
    """One acknowledged message."""

    n: int
    msg_id: str
    queue_id: int
    queue_offset: int
    status: str


class Got(NamedTuple):
    """One message that a consumer took; times in milliseconds."""

    n: int
    queue_id: int
    queue_offset: int
    msg_id: str
    reconsume_times: int
    tags: str
    keys: str
    body_crc: int
    text: str
    flag: int
    born: int
    stored: int
    received: int
    topic: str


def rows(output: str, word: str) -> list[list[str]]:
    """Return the fields after `word` of each line that starts with it."""
    return [line.split("\t")[1:] for line in output.splitlines() if line.startswith(f"{word}\t") or line == word]


def sent(output: str) -> list[Sent]:
    return [Sent(int(n), msg_id, int(q), int(o), status) for n, msg_id, q, o, status in rows(output, "SENT")]


def got(output: str, word: str = "GOT") -> list[Got]:
    return [_got(row) for row in rows(output, word) if len(row) == len(Got._fields)]


def _got(row: list[str]) -> Got:
    n, queue, offset, msg_id, times, tags, keys, crc, text, flag, born, stored, received, topic = row
    return Got(
        int(n), int(queue), int(offset), msg_id, int(times), tags, keys, int(crc), text, int(flag), int(born),
        int(stored), int(received), topic,
    )  # fmt: skip


def body_of(n: int) -> bytes:
    """Return the body that Messages.java gives message n."""
    repeats = 1200 if n % 100 == 99 else n % 7
    return (f"body {n} é世 " + "".join(f"filler {i}" for i in range(repeats))).encode()


def check_content(messages: list[Got], tags: str = "A,B,C") -> None:
    """Check body, tags, keys, flag and properties of each message."""
    names = tags.split(",")
    for message in messages:
        n = message.n
        assert (message.tags, message.keys) == (names[n % len(names)], f"key{n} common"), message
        assert (message.text, message.flag) == (f"é世 {n}", n), message
        assert message.body_crc == zlib.crc32(body_of(n)), message


def check_places(messages: list[Got], acknowledged: list[Sent]) -> None:
    """Check that each message has the place and the id acknowledged to its producer."""
    told = {each.n: (each.queue_id, each.queue_offset, each.msg_id) for each in acknowledged}
    found = {each.n: (each.queue_id, each.queue_offset, each.msg_id) for each in messages}
    differing = {n: (found.get(n), told.get(n)) for n in found.keys() | told.keys() if found.get(n) != told.get(n)}
    assert differing == {}


def check_contiguous(messages: list[Got]) -> None:
    """Check that the offsets of each queue run from 0 without a gap, in list order."""
    for queue_id in {each.queue_id for each in messages}:
        offsets = [each.queue_offset for each in messages if each.queue_id == queue_id]
        assert offsets == list(range(len(offsets))), f"queue {queue_id}"


def last_queues(output: str) -> list[int] | None:
    """Return the queue ids of the newest QUEUES line."""
    lines = rows(output, "QUEUES")
    return [int(each) for each in lines[-1][0].split(",") if each] if lines else None
