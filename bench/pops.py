"""Costs of POP: records and bytes in the log, and CPU time by request, in one process and without network.

    bench/run profile_pop [--size 128] [--bursts 40]

A burst sends messages, pops them, and acknowledges all of them in time: by 32 messages a pop and one BATCH_ACK_MESSAGE,
then one message a pop and an ACK_MESSAGE. Each request comes by a read event of its own. A second broker stores no POP
records; the difference is their cost. The least CPU time of a burst counts.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from time import thread_time
from typing import Final, NamedTuple
from unittest.mock import patch

from bench.harness import Bursts, Folder, Size, commit, table, temporary
from bench.profiles import freeze
from bench.send_path import GROUP, TOPIC, SendPath, read_event, send_frame, send_path
from rocketbroker.broker.pop.pop_check_points import PopCheckPoints
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.pop_info import ExtraInfo, parse_start_offset_info
from rocketbroker.codec.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketbroker.codec.remoting.frame import decode_frames, encode_frame
from rocketbroker.codec.remoting.headers.pop import (
    AckMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import from_ext_fields, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus

_MESSAGES: Final = 512
_INVISIBLE_MS: Final = 60_000
_BROKER: Final = "broker-a"


class Figures(NamedTuple):
    """Costs of one message.

    Attributes:
        pop: CPU time of the pop in µs.
        ack: CPU time of the acknowledgement in µs.
        records: records in the log.
        size: bytes of the records.
    """

    pop: float
    ack: float
    records: float
    size: float


def _pop_frame(most: int) -> bytes:
    header = PopMessageRequestHeader(
        GROUP, TOPIC, -1, most, _INVISIBLE_MS, 0, 0, 0, exp_type="TAG", exp="*", broker_name=_BROKER
    )
    return encode_frame(request(RequestCode.POP_MESSAGE, header))


def _ack_frames(answer: bytes, most: int) -> Iterator[bytes]:
    """Yield the requests of a client that acknowledges what it popped."""
    (popped,) = decode_frames(answer)
    fields = from_ext_fields(popped.header, PopMessageResponseHeader)
    starts = parse_start_offset_info(fields.start_offset_info or "")
    times = fields.pop_time, fields.invisible_time, fields.revive_qid
    messages = list(decode_messages(popped.body, check_crc=False))
    if most > 1:
        acks = []
        for (retry, queue_id), start in starts.items():
            bits = sum(1 << each.queue_offset - start for each in messages if each.queue_id == queue_id)
            named = start, queue_id, times[2], times[0], times[1]
            acks.append(BatchAck(GROUP, TOPIC, retry, *named, bits.to_bytes(bits.bit_length() + 7 >> 3, "little")))
        body = BatchAckMessageRequestBody(_BROKER, acks)
        yield encode_frame(request(RequestCode.BATCH_ACK_MESSAGE, None, body.encode()))
        return
    for each in messages:
        (start,) = starts.values()
        handle = ExtraInfo(start, *times, "0", _BROKER, each.queue_id, each.queue_offset).encode()
        header = AckMessageRequestHeader(GROUP, TOPIC, each.queue_id, handle, each.queue_offset, broker_name=_BROKER)
        yield encode_frame(request(RequestCode.ACK_MESSAGE, header))


def _answer(path: SendPath, frame: bytes) -> tuple[bytes, float]:
    """Return the answer to a request, and the CPU time that it took."""
    kept: list[bytes] = []
    path.transport.kept = kept
    begun = thread_time()
    read_event(path.connection, frame)
    took = thread_time() - begun
    path.transport.kept = None
    return b"".join(kept), took


def burst(path: SendPath, first: int, most: int, size: int) -> Figures:
    """Send messages, pop them by so many, and acknowledge them."""
    for number in range(first, first + _MESSAGES):
        read_event(path.connection, send_frame(number, b"x" * size))
    log, records = path.store.flusher.max_offset, path.store.queues.max_offset_in_queue(TIMER_TOPIC, 0)
    frame, pop, ack = _pop_frame(most), 0.0, 0.0
    for _ in range(_MESSAGES // most):
        answer, took = _answer(path, frame)
        pop += took
        for acknowledgement in _ack_frames(answer, most):
            ack += _answer(path, acknowledgement)[1]
    made = path.store.queues.max_offset_in_queue(TIMER_TOPIC, 0) - records
    return Figures(
        pop / _MESSAGES * 1e6,
        ack / _MESSAGES * 1e6,
        made / _MESSAGES,
        (path.store.flusher.max_offset - log) / _MESSAGES,
    )


async def pop_profile(root: Path, most: int, size: int, bursts: int) -> Figures:
    """Return the costs of messages that are popped by so many; times are the least of the bursts."""
    async with send_path(root) as path:
        freeze()
        found = [burst(path, number * _MESSAGES, most, size) for number in range(bursts + 1)][1:]
    return Figures(min(each.pop for each in found), min(each.ack for each in found), *found[-1][2:])


def without_records() -> Callable[..., PutMessageResult]:
    """Return a replacement of ``PopCheckPoints._put`` that stores nothing."""
    places = count(1 << 40)
    return lambda *_: PutMessageResult(PutMessageStatus.PUT_OK, 0, next(places))


def profile_pop(size: Size = 128, bursts: Bursts = 40, folder: Folder = None) -> None:
    """Print what pops and acknowledgements store, and what they cost. A broker adds the loop and the system calls."""
    rows: list[Sequence[str]] = []
    for most in (32, 1):
        with temporary(folder) as root:
            stored = asyncio.run(pop_profile(root / "stored", most, size, bursts))
            with patch.object(PopCheckPoints, "_put", without_records()):
                bare = asyncio.run(pop_profile(root / "bare", most, size, bursts))
        share = (stored.pop + stored.ack - bare.pop - bare.ack) / (stored.pop + stored.ack)
        rows.append(
            [
                f"pop{most}",
                f"{stored.records:.3f}",
                f"{stored.size:,.0f}",
                f"{stored.pop:.2f}",
                f"{stored.ack:.2f}",
                f"{bare.pop:.2f}",
                f"{bare.ack:.2f}",
                f"{share:.0%}",
            ]
        )
    print(f"commit {commit()}, Python {sys.version.split()[0]}, {size} B, {bursts} bursts\n")
    names = "load", "records", "bytes", "pop µs", "ack µs", "pop without", "ack without", "share of records"
    print(table([names[0], *(f"{each} a message" for each in names[1:3]), *names[3:]], rows))
