"""Sends and pulls without the cost of a client: requests are built by hand, answers counted but barely decoded.

All requests share one connection, with one request of each queue in flight.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from bench.harness import BenchError
from bench.store_generator import Messages, with_number
from rocketbroker.codec.message.message_batch import encode_batch
from rocketbroker.codec.message.message_decoder import OFFSETS, QUEUE_OFFSET_POSITION
from rocketbroker.codec.remoting.headers.message import FLAG_SUBSCRIPTION
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.raw_client import RawAnswer, RawClient, raw_frame, raw_header

_AT_ONCE = 64  # sends in flight
_MAX_NUMS = 32  # messages per pull
_GROUP = "bench_pull"


@dataclass(frozen=True, slots=True)
class Pulled:
    """Result of pulls: messages, pulls and seconds."""

    messages: int
    pulls: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


def pull(address: str, topic: str, starts: Sequence[int], each: int) -> Pulled:
    """Pull ``each`` messages of each queue of a topic.

    Args:
        address: ``host:port`` of the broker.
        topic: the topic, whose messages all have one length.
        starts: the first queue offset, by queue.
        each: messages to pull from each queue.

    Raises:
        BenchError: the broker returned the wrong messages or none.
    """
    offsets = list(starts)
    ends = [start + each for start in starts]
    pulls = 0
    with RawClient(address) as client:
        begun = perf_counter()
        while wanted := [queue for queue, offset in enumerate(offsets) if offset < ends[queue]]:
            client.send(b"".join(_pull_frame(topic, queue, offsets[queue], ends[queue]) for queue in wanted))
            for answer in _answers(client, len(wanted)):
                queue = answer.header["opaque"]
                offsets[queue] = _next_offset(answer, offsets[queue])
            pulls += len(wanted)
        return Pulled(each * len(starts), pulls, perf_counter() - begun)


def _pull_frame(topic: str, queue: int, offset: int, end: int) -> bytes:
    fields = {
        "consumerGroup": _GROUP, "topic": topic, "queueId": queue, "queueOffset": offset,
        "maxMsgNums": min(_MAX_NUMS, end - offset), "sysFlag": FLAG_SUBSCRIPTION, "commitOffset": 0,
        "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    return frame(RequestCode.PULL_MESSAGE, fields, queue)


def frame(code: RequestCode, fields: Mapping[str, object], opaque: int = 1, body: bytes = b"") -> bytes:
    """Return a request as bytes."""
    return raw_frame(raw_header(code, {name: str(value) for name, value in fields.items()}, opaque), body)


def _answers(client: RawClient, count: int) -> Iterator[RawAnswer]:
    for _ in range(count):
        answer = client.read()
        if answer is None:
            raise BenchError("the broker closed the connection")
        if answer.code != ResponseCode.SUCCESS:
            raise BenchError(f"the broker answered {answer.code}: {answer.remark}")
        yield answer


def _next_offset(answer: RawAnswer, offset: int) -> int:
    following = int(answer.fields["nextBeginOffset"])
    count = following - offset
    first_size = int.from_bytes(answer.body[:4], "big")
    first, _ = OFFSETS.unpack_from(answer.body, QUEUE_OFFSET_POSITION)
    if count < 1 or len(answer.body) != count * first_size or first != offset:
        raise BenchError(f"a pull at {offset} returned {len(answer.body)} bytes from offset {first}, next {following}")
    return following


def send(address: str, messages: Messages, count: int) -> None:
    """Send the first ``count`` messages as batches of one, since a broker adds no properties to batches.

    Raises:
        BenchError: the broker rejected a request.
    """
    with RawClient(address) as client:
        for start in range(0, count, _AT_ONCE):
            numbers = range(start, min(start + _AT_ONCE, count))
            client.send(b"".join(_send_frame(messages, number) for number in numbers))
            for _ in _answers(client, len(numbers)):
                pass


def _send_frame(messages: Messages, number: int) -> bytes:
    topic, queue_id = messages.place(number % messages.streams)
    fields = {
        "a": "bench_producer", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0,
        "g": messages.timestamp(number), "h": 0, "i": "", "j": 0, "k": "false", "m": "true", "n": "broker-a",
    }  # fmt: skip
    one = (0, with_number(messages.body, number), with_number(messages.properties, number))
    return frame(RequestCode.SEND_BATCH_MESSAGE, fields, number, encode_batch([one]))


def commit_offsets(address: str, group: str, topic: str, offsets: Sequence[int]) -> None:
    """Commit these offsets, by queue, for a consumer group that begins there.

    Raises:
        BenchError: the broker rejected a request.
    """
    made = json.dumps({"groupName": group}).encode()
    ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=made)
    for queue, offset in enumerate(offsets):
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset}
        ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def ask(address: str, code: RequestCode, fields: Mapping[str, object] | None = None, body: bytes = b"") -> RawAnswer:
    """Send one request and wait for its answer.

    Raises:
        BenchError: the answer is not a success.
    """
    with RawClient(address) as client:
        client.send(frame(code, fields or {}, body=body))
        (answer,) = _answers(client, 1)
    return answer


def log_end(address: str) -> int:
    """Return the CommitLog offset after the last message."""
    answer = ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])
