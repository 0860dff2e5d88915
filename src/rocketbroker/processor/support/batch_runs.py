"""Batches of one read event whose headers differ in a few values only: stored by one write.

Whatever is special about a batch is left to ``BatchSend``: a run with such a batch in it is processed batch by batch.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.message_sys_flag import BROKER_FLAGS, host_flags
from rocketbroker.codec.remoting.escaped_properties import decode_plain
from rocketbroker.codec.remoting.handler import Connection, RunAnswers
from rocketbroker.codec.remoting.headers.send_message import SendMessageRequestHeader
from rocketbroker.codec.remoting.hot_responses import message_ids, send_response
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.processor.support.key_limit import KeyLimit
from rocketbroker.processor.support.send_answers import SendAnswers
from rocketbroker.processor.support.send_runs import SendRuns
from rocketbroker.processor.support.topic_target import TopicTarget
from rocketbroker.store.commitlog.put_message import BatchRun
from rocketbroker.store.message_appender import MessageAppender

log = logging.getLogger(__name__)


class BatchRuns:
    """Stores runs of batches.

    Args:
        sends: finds their topic.
        store_config: the limit of a batch.
        appender: append path of the messages.
        store_host: the broker's address in the form of records.
        key_limit: limit of a message's keys.
        answers: delay of answers.
    """

    fields: Final = SendRuns.fields
    # For fewer, the arrays of a run cost more than they save.
    fewest: Final = 3

    def __init__(
        self,
        sends: SendRuns,
        store_config: MessageStoreConfig,
        appender: MessageAppender,
        store_host: bytes,
        key_limit: KeyLimit,
        answers: SendAnswers,
    ) -> None:
        self._sends = sends
        self._store_config = store_config
        self._appender = appender
        self._store_host = store_host
        self._host_hex = store_host.hex().upper()
        self._key_limit = key_limit
        self._answers = answers

    @staticmethod
    def accepts(command: Command) -> bool:
        """Return true if requests like this one may come in runs."""
        header: SendMessageRequestHeader = command.header
        return not command.flag and header.batch and not header.sys_flag & BROKER_FLAGS

    def process(
        self,
        connection: Connection,
        command: Command,
        values: Sequence[Sequence[bytes]],
        bodies: Sequence[ReadableBuffer],
    ) -> bytes | asyncio.Future[RunAnswers] | None:
        """Store all batches and return their answers, or store none and return ``None`` if one of them is special.

        Arguments are those of ``SendRuns.process``.
        """
        try:
            prepared = self._prepare(connection, command, values, bodies)
        except Exception:
            # One by one, the batch that fails gets its answer, and harms no other.
            log.exception("batches that came together cannot be prepared; each is handled alone")
            return None
        if prepared is None:
            return None
        target, run, unique_keys = prepared
        result = self._appender.put_batches(run)
        if result is None:
            return None
        target.stats.add(len(result.physical_offsets), result.size, len(bodies))
        ids = message_ids(self._host_hex, result.physical_offsets)
        id_length = (len(ids) + 1) // len(result.physical_offsets)
        answers: list[bytes] = []
        begin = 0
        for batch, queue_id, count, queue_offset, unique_key in zip(
            values, run.queue_ids, run.counts, result.queue_offsets, unique_keys, strict=True
        ):
            end = begin + count * id_length
            opaque, its_ids = int(batch[-1]), ids[begin : end - 1]
            answers.append(
                send_response(opaque, queue_id, queue_offset, its_ids, unique_key, self._sends.own.answer_fields)
            )
            begin = end
        joined = b"".join(answers)
        return self._answers.run_when_safe(joined, result, target) if target.waits else joined

    def _prepare(
        self,
        connection: Connection,
        command: Command,
        values: Sequence[Sequence[bytes]],
        bodies: Sequence[ReadableBuffer],
    ) -> tuple[TopicTarget, BatchRun, list[bytes | None]] | None:
        """Return the batches, their topic and their unique keys, or ``None`` if one of them is special."""
        from rocketbroker.codec.message.alike_messages import alike_messages

        target = self._sends.target(connection, command.header)
        if target is None or target.is_batch_cq:
            return None
        queue_ids, born_timestamps, texts, _ = zip(*values, strict=True)
        queues = list(map(int, queue_ids))
        plain = decode_plain(texts)
        if plain is None or max(queues) >= target.queue_nums:
            return None
        properties, found = plain
        if max(map(len, bodies)) > self._store_config.max_message_size:
            return None
        if not self._key_limit.always_fits_all(properties, found):
            return None
        if target.waits and not self._answers.takes_run(target, properties):
            return None
        messages = alike_messages(bodies)
        if messages is None:
            return None
        size = messages.rows.shape[1]
        header, born_host = command.header, connection.remote_host
        run = BatchRun(
            header.topic,
            queues,
            [len(body) // size for body in bodies],
            list(map(int, born_timestamps)),
            messages,
            header.sys_flag | target.sys_flag | host_flags(born_host, self._store_host),
            born_host,
            header.reconsume_times,
        )
        return target, run, [each[1] for each in found]
