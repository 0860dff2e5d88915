"""Sends of one read event whose headers differ in a few values only: stored by one write, answered by one template.

Whatever is special about a send is left to ``SendMessageProcessor.process``: a run with such a send in it is processed
send by send.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.message_sys_flag import BROKER_FLAGS, host_flags
from rocketbroker.codec.remoting.escaped_properties import decode_plain
from rocketbroker.codec.remoting.handler import Connection, RunAnswers
from rocketbroker.codec.remoting.header_template import INT, LONG, TEXT, VaryingField
from rocketbroker.codec.remoting.headers.send_message import SendMessageRequestHeader
from rocketbroker.codec.remoting.hot_responses import frames, send_responses
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.broker_properties import BrokerProperties
from rocketbroker.processor.support.key_limit import KeyLimit
from rocketbroker.processor.support.send_answers import SendAnswers
from rocketbroker.processor.support.topic_target import TopicTarget, TopicTargets
from rocketbroker.store.commitlog.put_message import MessageRun
from rocketbroker.store.message_appender import MessageAppender

log = logging.getLogger(__name__)


class SendRuns:
    """Stores runs of sends.

    Args:
        config: region, cluster.
        appender: append path of the messages.
        store_host: the broker's address in the form of records.
        targets: topics, found or created.
        key_limit: limit of a message's keys.
        answers: delay of answers.

    Attributes:
        own: the broker's properties.
    """

    #: Values in which the headers of a run differ.
    fields: Final = (
        VaryingField("queue_id", INT),
        VaryingField("born_timestamp", LONG),
        VaryingField("properties", TEXT),
    )

    def __init__(
        self,
        config: BrokerConfig,
        appender: MessageAppender,
        store_host: bytes,
        targets: TopicTargets,
        key_limit: KeyLimit,
        answers: SendAnswers,
    ) -> None:
        self._config = config
        self._appender = appender
        self._store_host = store_host
        self._targets = targets
        self._key_limit = key_limit
        self._answers = answers
        self.own = BrokerProperties(config, store_host)

    # For fewer, the columns of a run cost more than they save.
    fewest: Final = 6

    @staticmethod
    def accepts(command: Command) -> bool:
        """Return true if requests like this one may come in runs."""
        header: SendMessageRequestHeader = command.header
        return not command.flag and not header.batch and not header.sys_flag & BROKER_FLAGS

    def process(
        self,
        connection: Connection,
        command: Command,
        values: Sequence[Sequence[bytes]],
        bodies: Sequence[ReadableBuffer],
    ) -> bytes | asyncio.Future[RunAnswers] | None:
        """Store all messages and return their answers, or store none and return ``None`` if one of them is special.

        Args:
            connection: the connection that they came by.
            command: a request that differs from each of them only in ``values``.
            values: values of ``fields`` for each message, and its opaque.
            bodies: their bodies.
        """
        try:
            prepared = self._prepare(connection, command, values, bodies)
        except Exception:
            # One by one, the send that fails gets its answer, and harms no other.
            log.exception("sends that came together cannot be prepared; each is handled alone")
            return None
        if prepared is None:
            return None
        target, run = prepared
        result = self._appender.put_run(run)
        if result is None:
            return None
        queue_ids, _, _, opaques = zip(*values, strict=True)
        target.stats.add(len(queue_ids), result.size, len(queue_ids))
        answers = frames(
            send_responses(
                opaques,
                queue_ids,
                result.queue_offsets,
                result.physical_offsets,
                [each[1] for each in run.found],
                self.own.run_template,
            )
        )
        return self._answers.run_when_safe(answers, result, target) if target.waits else answers

    def _prepare(
        self,
        connection: Connection,
        command: Command,
        values: Sequence[Sequence[bytes]],
        bodies: Sequence[ReadableBuffer],
    ) -> tuple[TopicTarget, MessageRun] | None:
        """Return the messages and their topic, or ``None`` if one of them is special."""
        target = self.target(connection, command.header)
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
        own = self.own.encoded
        header, born_host = command.header, connection.remote_host
        return target, MessageRun(
            header.topic,
            queues,
            bodies,
            [each + own for each in properties],
            list(map(int, born_timestamps)),
            found,
            header.flag,
            header.sys_flag | target.sys_flag | host_flags(born_host, self._store_host),
            born_host,
            header.reconsume_times,
        )

    def target(self, connection: Connection, header: SendMessageRequestHeader) -> TopicTarget | None:
        """Return the topic of a run; ``None`` if it, or the broker's state, is special."""
        config, own = self._config, self.own
        if config.trace_on is not own.trace_on or config.region_id is not own.region_id:
            self.own = BrokerProperties(config, self._store_host)  # UPDATE_BROKER_CONFIG changed them
        if connection.waited_s * 1000 >= config.wait_time_mills_in_send_queue and config.broker_fast_failure_enable:
            return None
        try:
            target = self._targets.find(header, connection.remote_address)
        except BrokerResponseError:
            return None
        return None if target.is_retry else target
