"""Runs of sends that differ in a few values only, stored by one write and answered by one template."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_const import BROKER_FLAGS, host_flags
from rocketbroker.codec.message.message_properties import FoundProperties
from rocketbroker.codec.remoting.handler import Connection, RunAnswers, RunHandler
from rocketbroker.codec.remoting.header_template import INT, LONG, TEXT, VaryingField, decode_plain
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader
from rocketbroker.codec.remoting.hot_responses import frames, message_ids, send_response, send_responses
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.send_answers import SendAnswers
from rocketbroker.processor.support.sent_properties import BrokerProperties, KeyLimit
from rocketbroker.processor.support.topic_target import TopicTarget, TopicTargets
from rocketbroker.store.commitlog.put_message import BatchRun, MessageRun, PutMessageResult

# Sends of one read event whose headers differ in a few values only: stored by one write, or left to be handled alone.
#
# Some sends cannot join a run: those with a property that the broker acts on, with too many keys, for a queue that the
# topic lacks, or that might be rejected. ``SendMessageProcessor.process`` handles a run with such a send one by one.

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


class AlikeSends(RunHandler, Generic[R]):
    """Handler of sends that come together; ``R`` is what the store takes.

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

    fields = (
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
        columns: Sequence[Sequence[bytes]],
        bodies: Sequence[ReadableBuffer],
    ) -> bytes | asyncio.Future[RunAnswers] | None:
        """Store all messages and return their answers, or store none and return ``None`` if one cannot join a run.

        Args:
            connection: the connection that they came by.
            command: a request that differs from each of them only in ``columns``.
            columns: values of ``fields``, and the opaques; a value for each send.
            bodies: their bodies.
        """
        try:
            sends = self._decode(connection, command.header, columns)
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
        if target.meter is not None:
            target.meter.sent_together(sends.properties, bodies, result.size, len(result.physical_offsets))
        answers = self._encode_answers(columns, sends, run, result)
        return self._answers.run_when_safe(answers, result, target) if target.waits else answers

    @abstractmethod
    def _prepare(self, sends: SendColumns, bodies: Sequence[ReadableBuffer]) -> R | None:
        """Return the messages for the store, or ``None`` if one of them cannot join a run."""

    @abstractmethod
    def _encode_answers(
        self, columns: Sequence[Sequence[bytes]], sends: SendColumns, run: R, result: PutMessageResult
    ) -> bytes:
        """Return the answers, back to back."""

    def _decode(
        self, connection: Connection, header: SendMessageRequestHeader, columns: Sequence[Sequence[bytes]]
    ) -> SendColumns | None:
        """Return the decoded values, or ``None`` if one of the sends cannot join a run."""
        target = self.target(connection, header)
        if target is None:
            return None
        queue_ids, born_timestamps, texts, _ = columns
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


class SendRuns(AlikeSends[MessageRun]):
    """Stores runs of single messages."""

    # A message of a run of 6 takes 9.7 µs and alone 8.9, one of 8 takes 8.1 and 8.8; at 7 both take as long.
    fewest = 7

    def accepts(self, command: Command) -> bool:
        """Return true if requests like this one may come in runs."""
        header: SendMessageRequestHeader = command.header
        return not command.flag and not header.batch and not header.sys_flag & BROKER_FLAGS

    def _prepare(self, sends: SendColumns, bodies: Sequence[ReadableBuffer]) -> MessageRun:
        header, own = sends.header, self.own.encoded
        return MessageRun(
            header.topic,
            sends.queue_ids,
            bodies,
            [each + own for each in sends.properties],
            sends.born_timestamps,
            sends.found,
            header.flag,
            sends.sys_flag,
            sends.born_host,
            header.reconsume_times,
        )

    def _encode_answers(
        self, columns: Sequence[Sequence[bytes]], sends: SendColumns, run: MessageRun, result: PutMessageResult
    ) -> bytes:
        queue_ids, _, _, opaques = columns
        unique_keys = [each[1] for each in sends.found]
        offsets, physical_offsets = result.queue_offsets, result.physical_offsets
        return frames(send_responses(opaques, queue_ids, offsets, physical_offsets, unique_keys, self.own.run_template))


class BatchRuns(AlikeSends[BatchRun]):
    """Stores runs of batches."""

    # A message takes 2.3 µs in a run of two batches and 2.1 alone, in a run of three 1.6 and 2.0.
    fewest = 3

    def accepts(self, command: Command) -> bool:
        """Return true if requests like this one may come in runs."""
        header: SendMessageRequestHeader = command.header
        return not command.flag and header.batch and not header.sys_flag & BROKER_FLAGS

    def _prepare(self, sends: SendColumns, bodies: Sequence[ReadableBuffer]) -> BatchRun | None:
        from rocketbroker.codec.message.alike_messages import alike_messages

        messages = None if sends.target.is_batch_cq else alike_messages(bodies)
        if messages is None:
            return None
        size = messages.rows.shape[1]
        return BatchRun(
            sends.header.topic,
            sends.queue_ids,
            [len(body) // size for body in bodies],
            sends.born_timestamps,
            messages,
            sends.sys_flag,
            sends.born_host,
            sends.header.reconsume_times,
        )

    def _encode_answers(
        self, columns: Sequence[Sequence[bytes]], sends: SendColumns, run: BatchRun, result: PutMessageResult
    ) -> bytes:
        ids = message_ids(self._store_host.hex().upper(), result.physical_offsets)
        id_length = (len(ids) + 1) // len(result.physical_offsets)
        answers: list[bytes] = []
        begin = 0
        for opaque, queue_id, count, queue_offset, found in zip(
            columns[-1], run.queue_ids, run.counts, result.queue_offsets, sends.found, strict=True
        ):
            end = begin + count * id_length
            its_ids = ids[begin : end - 1]
            answers.append(
                send_response(int(opaque), queue_id, queue_offset, its_ids, found[1], self.own.answer_fields)
            )
            begin = end
        return b"".join(answers)
