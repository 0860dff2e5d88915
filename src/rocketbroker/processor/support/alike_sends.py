"""Sends of one read event whose headers differ in a few values only: stored by one write, or left to be handled alone.

Some sends cannot join a run: those with a property that the broker acts on, with too many keys, for a queue that the
topic lacks, or that might be rejected. ``SendMessageProcessor.process`` handles a run with such a send one by one.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_properties import FoundProperties
from rocketbroker.codec.remoting.handler import Connection, RunAnswers
from rocketbroker.codec.remoting.header_template import INT, LONG, TEXT, VaryingField, decode_plain
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.broker_properties import BrokerProperties
from rocketbroker.processor.support.key_limit import KeyLimit
from rocketbroker.processor.support.send_answers import SendAnswers
from rocketbroker.processor.support.topic_target import TopicTarget, TopicTargets
from rocketbroker.store.commitlog.put_message import PutMessageResult

log = logging.getLogger(__name__)

R = TypeVar("R")


class SendColumns(msgspec.Struct, gc=False):
    """Decoded values of sends: fields that differ as columns, the others once. ``found`` is in their properties."""

    target: TopicTarget
    header: SendMessageRequestHeader
    queue_ids: Sequence[int]
    born_timestamps: Sequence[int]
    properties: Sequence[bytes]
    found: Sequence[FoundProperties]
    sys_flag: int
    born_host: bytes


class AlikeSends(ABC, Generic[R]):
    """Handler of sends that come together (``RunHandler``); ``R`` is what the store takes.

    Args:
        put: stores all messages, or none and returns ``None``.
        config: region, cluster.
        store_host: the broker's address in the form of records.
        targets: topics, found or created.
        key_limit: limit of a message's keys.
        answers: delay of answers.

    Attributes:
        own: the broker's properties.
    """

    #: Values in which the headers differ.
    fields: Final = (
        VaryingField("queue_id", INT),
        VaryingField("born_timestamp", LONG),
        VaryingField("properties", TEXT),
    )

    def __init__(
        self,
        put: Callable[[R], PutMessageResult | None],
        config: BrokerConfig,
        store_host: bytes,
        targets: TopicTargets,
        key_limit: KeyLimit,
        answers: SendAnswers,
    ) -> None:
        self._put = put
        self._config = config
        self._store_host = store_host
        self._targets = targets
        self._key_limit = key_limit
        self._answers = answers
        self.own = BrokerProperties(config, store_host)

    def process(
        self,
        connection: Connection,
        command: Command,
        values: Sequence[Sequence[bytes]],
        bodies: Sequence[ReadableBuffer],
    ) -> bytes | asyncio.Future[RunAnswers] | None:
        """Store all messages and return their answers, or store none and return ``None`` if one cannot join a run.

        Args:
            connection: the connection that they came by.
            command: a request that differs from each of them only in ``values``.
            values: values of ``fields`` for each send, and its opaque.
            bodies: their bodies.
        """
        try:
            sends = self._decode(connection, command.header, values)
            run = None if sends is None else self._prepare(sends, bodies)
        except Exception:
            # One by one, the send that fails gets its answer, and harms no other.
            log.exception("sends that came together cannot be prepared; each is handled alone")
            return None
        if sends is None or run is None:
            return None
        result = self._put(run)
        if result is None:
            return None
        target = sends.target
        target.stats.add(len(result.physical_offsets), result.size, len(bodies))
        answers = self._encode_answers(values, sends, run, result)
        return self._answers.run_when_safe(answers, result, target) if target.waits else answers

    @abstractmethod
    def _prepare(self, sends: SendColumns, bodies: Sequence[ReadableBuffer]) -> R | None:
        """Return the messages for the store, or ``None`` if one of them cannot join a run."""

    @abstractmethod
    def _encode_answers(
        self, values: Sequence[Sequence[bytes]], sends: SendColumns, run: R, result: PutMessageResult
    ) -> bytes:
        """Return the answers, back to back."""

    def _decode(
        self, connection: Connection, header: SendMessageRequestHeader, values: Sequence[Sequence[bytes]]
    ) -> SendColumns | None:
        """Return the decoded values, or ``None`` if one of the sends cannot join a run."""
        target = self.target(connection, header)
        if target is None:
            return None
        queue_ids, born_timestamps, texts, _ = zip(*values, strict=True)
        queues = list(map(int, queue_ids))
        plain = decode_plain(texts)
        if plain is None or max(queues) >= target.queue_nums:
            return None
        properties, found = plain
        if not self._key_limit.always_fits_all(properties, found):
            return None
        if target.waits and not self._answers.takes_run(target, properties):
            return None
        born_host = connection.remote_host
        sys_flag = header.sys_flag | target.sys_flag | host_flags(born_host, self._store_host)
        return SendColumns(
            target, header, queues, list(map(int, born_timestamps)), properties, found, sys_flag, born_host
        )

    def target(self, connection: Connection, header: SendMessageRequestHeader) -> TopicTarget | None:
        """Return the topic of a run; ``None`` if its sends cannot join one."""
        config, own = self._config, self.own
        if config.trace_on is not own.trace_on or config.region_id is not own.region_id:
            self.own = BrokerProperties(config, self._store_host)  # UPDATE_BROKER_CONFIG changed them
        if connection.waited_s * 1000 >= config.wait_time_mills_in_send_queue and config.broker_fast_failure_enable:
            return None
        try:
            target = self._targets.find(header, connection)
        except BrokerResponseError:
            return None
        return None if target.is_retry else target
