"""Requests as this client sends them, and what becomes of answers and failures (MQClientAPIImpl of RocketMQ)."""

import logging
import re
import time
from typing import Protocol, TypeVar

from rocketbroker.client.core.errors import broker_error
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.headers.message import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader, from_ext_fields, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode

LANGUAGE = "PYTHON"

T = TypeVar("T", bound=CommandCustomHeader)


def client_request(code: int, header: object = None, body: bytes = b"", *, oneway: bool = False) -> Command:
    """Make a request with this client's language code."""
    command = request(code, header, body, oneway=oneway)
    command.language = LANGUAGE
    return command


def check_success(answer: Command) -> Command:
    """Return the answer if it reports success.

    Raises:
        BrokerResponseError: It reports something else.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark)
    return answer


def answer_header(answer: Command, header_type: type[T]) -> T:
    """Return the typed header of a successful answer.

    Raises:
        BrokerResponseError: the answer is one other than success.
        CodecError: a field is missing or mistyped.
    """
    return from_ext_fields(check_success(answer).header, header_type)


# Seconds for which a failure is not logged again.
_QUIET_S = 60.0
#: Causes that are remembered; older ones than a minute are forgotten beyond that.
MOST_CAUSES = 256
_DURATION = re.compile(r"[\d.,]+ ?m?s\b")


class FailureLog:
    """Warnings of one part of a client: a line a minute for each cause, with the number of those left out.

    A cause is the text of the warning and of its error. Retries come every second or more often, for each queue, and
    would bury what else is logged.

    Args:
        log: the logger of the module.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        # Time of the last line, and the failures since.
        self._causes: dict[tuple[str, str], tuple[float, int]] = {}

    @property
    def cause_count(self) -> int:
        """Number of causes that are remembered."""
        return len(self._causes)

    def warning(self, text: str, *values: object) -> None:
        """Log a failure unless the last minute has a line of its cause; the last of ``values`` is the error."""
        now = time.monotonic()
        cause = text, _DURATION.sub("", str(values[-1]))
        logged_at, left_out = self._causes.get(cause, (-_QUIET_S, 0))
        if now < logged_at + _QUIET_S:
            self._causes[cause] = logged_at, left_out + 1
            return
        if len(self._causes) >= MOST_CAUSES:
            self._causes = {of: each for of, each in self._causes.items() if now < each[0] + _QUIET_S}
        self._causes[cause] = now, 0
        if left_out:
            text, values = f"{text} (and %d more since the last such line)", (*values, left_out)
        self._log.warning(text, *values)


# Names of version numbers (org.apache.rocketmq.common.MQVersion).
#
# Commands carry the ordinal of an enum. From V3_9_1 (ordinal 194, 195) on it counts without a gap: each version has a
# SNAPSHOT, even, and a release, odd; after x.9.9 comes (x+1).0.0. The enum ends with V5_9_9.

V5_0_0_SNAPSHOT = 412
_FIRST_REGULAR = 194
_LAST = 611


def version_desc(ordinal: int) -> str:
    """Return ``V5_5_0`` for 513; a version before V3_9_1, whose order is irregular, is called by its number."""
    if ordinal < _FIRST_REGULAR:
        return f"VERSION_{ordinal}"
    number = (min(ordinal, _LAST) - 14) // 2 + 301
    suffix = "" if min(ordinal, _LAST) % 2 else "_SNAPSHOT"
    return f"V{number // 100}_{number // 10 % 10}_{number % 10}{suffix}"


class InvokeAtBroker(Protocol):
    """Sends a request to the broker that has a queue."""

    async def __call__(self, queue: MessageQueue, command: Command, timeout_s: float | None = None) -> Command:
        """Return the answer, whatever its code."""


class QueueOffsets:
    """Asks the broker of a queue for offsets, and commits them. Each method may raise BrokerResponseError.

    Args:
        invoke: sends a request to the master of a queue.
    """

    def __init__(self, invoke: InvokeAtBroker) -> None:
        self._invoke = invoke

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset after the last message."""
        header = GetMaxOffsetRequestHeader(queue.topic, queue.queue_id)
        answer = await self._invoke(queue, client_request(RequestCode.GET_MAX_OFFSET, header))
        return answer_header(answer, GetMaxOffsetResponseHeader).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that is still there."""
        header = GetMinOffsetRequestHeader(queue.topic, queue.queue_id)
        answer = await self._invoke(queue, client_request(RequestCode.GET_MIN_OFFSET, header))
        return answer_header(answer, GetMinOffsetResponseHeader).offset

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at that time or after it."""
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        answer = await self._invoke(queue, client_request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))
        return answer_header(answer, SearchOffsetResponseHeader).offset

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the offset that a group has committed, or None: the broker knows none."""
        header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id)
        answer = await self._invoke(queue, client_request(RequestCode.QUERY_CONSUMER_OFFSET, header))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return answer_header(answer, QueryConsumerOffsetResponseHeader).offset

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Keep at the broker that a group has consumed all messages before ``offset``."""
        header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset)
        check_success(await self._invoke(queue, client_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)))
