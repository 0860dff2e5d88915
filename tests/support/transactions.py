"""The transactions of a broker without its network: sends, ends, checks, kills, and what consumers would get."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.transaction.half_messages import HalfQueueRecovery
from rocketbroker.broker.transaction.transactional_message_check_service import (
    TransactionalMessageCheckListener,
    TransactionalMessageCheckService,
)
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.broker.transaction.transactional_message_util import to_half_message
from rocketbroker.codec.message.message_const import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.remoting.headers.message import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.end_transaction import EndTransactionProcessor
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.stores import crash_copy, make_store, message, read_queue

STORE_HOST = host_bytes("127.0.0.1", 10911)
PRODUCER_HOST = host_bytes("127.0.0.1", 50000)
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK = TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE


class Transactions:
    """A store and all that ends and checks transactions in it; ``open`` starts them as a broker does."""

    def __init__(self, store: MessageStore, clock: FakeClock, offsets: ConsumerOffsetManager, **settings: int) -> None:
        self.clock = clock
        self.store = store
        self.root = Path(store.config.store_path_root_dir)
        self.offsets = offsets
        self.config = BrokerConfig(broker_name="broker-a", **settings)  # type: ignore[arg-type]
        self.topic_configs = TopicConfigManager(self.root / "topics.json", self.config, clock)
        self.producers = ProducerManager(clock, 120.0)
        stats = BrokerStatsManager(clock, "C")
        self.service = TransactionalMessageService(
            store.appender, store.flusher, offsets, self.config, STORE_HOST, clock, stats
        )
        self.recovery = HalfQueueRecovery(store.commit_log, store.queues, store.queries, offsets, self.service)
        self.checks = TransactionalMessageCheckService(
            self.service,
            TransactionalMessageCheckListener(self.producers, self.topic_configs, "broker-a", STORE_HOST),
            self.recovery.run,
            store.appender,
            store.queues,
            store.queries,
            store.acknowledgements,
            config=self.config,
            store_config=store.config,
            store_host=STORE_HOST,
            clock=clock,
        )
        self.processor = EndTransactionProcessor(
            self.config, store.queries, store.acknowledgements, self.service, STORE_HOST, clock
        )
        self.stats = stats
        self.number = 0

    @classmethod
    async def open(
        cls,
        root: Path,
        clock: FakeClock | None = None,
        committed: Mapping[str, int] | None = None,
        *,
        settings: Mapping[str, int] | None = None,
        **store_settings: Any,
    ) -> Self:
        """Open the store of a folder; ``committed`` has the consumer offsets that were written, by topic."""
        clock = clock or FakeClock()
        store = make_store(root, clock, **store_settings)
        await store.start()
        offsets = ConsumerOffsetManager(root / "consumerOffset.json", clock)
        for topic, offset in (committed or {}).items():
            offsets.commit(GROUP, topic, 0, offset)
        found = cls(store, clock, offsets, **(settings or {}))
        await found.recovery.run()
        return found

    async def close(self) -> None:
        """Stop cleanly."""
        await self.checks.stop()
        await self.store.stop()

    async def killed(self, into: Path, committed: Mapping[str, int] | None = None, **store_settings: Any) -> Self:
        """Return what a broker started after a kill at this moment finds."""
        copy = crash_copy(self.root, into)
        return await type(self).open(copy, self.clock, committed, **store_settings)

    def committed(self) -> dict[str, int]:
        """Return the consumer offsets as they would be written."""
        topics = {topic: self.offsets.query(GROUP, topic, 0) for topic in (HALF_TOPIC, OP_TOPIC)}
        return {topic: offset for topic, offset in topics.items() if offset >= 0}

    def send(self, body: bytes = b"", topic: str = "T", group: str = "PG", **properties: str) -> MessageExt:
        """Store a half message, as SEND_MESSAGE does."""
        self.number += 1
        named = {"UNIQ_KEY": f"{self.number:032X}", "TRAN_MSG": "true", "PGROUP": group, "TAGS": "A", **properties}
        half = message(
            body or b"body %d" % self.number,
            topic,
            1,
            properties=named,
            sys_flag=4,
            flag=7,
            born_timestamp=self.clock.time_ms(),
            born_host=PRODUCER_HOST,
        )
        to_half_message(half)
        result = self.store.appender.put_message(half)
        assert result.status is PutMessageStatus.PUT_OK, result
        self.store.appender.dispatch()
        return self.at(result.physical_offset)

    def at(self, physical_offset: int) -> MessageExt:
        """Return the message at an offset of the log."""
        record = self.store.commit_log.record(physical_offset)
        assert record is not None
        return decode_record(record)

    def end(self, half: MessageExt, outcome: int = COMMIT, *, oneway: bool = False, **fields: Any) -> Command:
        """Return the answer to an END_TRANSACTION for a half message."""
        given: dict[str, Any] = {
            "producer_group": "PG",
            "tran_state_table_offset": half.queue_offset,
            "commit_log_offset": half.commit_log_offset,
            "commit_or_rollback": outcome,
            "msg_id": half.uniq_key,
            **fields,
        }
        header = EndTransactionRequestHeader(**given)
        answer = self.processor.end_transaction(
            FakeConnection(), request(RequestCode.END_TRANSACTION, header, oneway=oneway)
        )
        self.store.appender.dispatch()
        assert isinstance(answer, RemotingCommand)
        return answer

    def producer(self, name: str, group: str = "PG") -> FakeConnection:
        """Register a producer and return it; its ``sent`` records all that is sent to it."""
        connection = FakeConnection()
        channel = ClientChannelInfo(connection, name, "JAVA", 513, self.clock.monotonic())
        self.producers.register(group, channel)
        return connection

    def asked(self, connection: FakeConnection) -> list[MessageExt]:
        """Return the half messages that a producer was asked for, as it can name them, oldest first; they are taken."""
        found = []
        for command in connection.sent:
            assert command.code == RequestCode.CHECK_TRANSACTION_STATE
            assert command.is_oneway
            header = command.header
            assert isinstance(header, CheckTransactionStateRequestHeader)
            half = self.at(header.commit_log_offset)
            assert half.queue_offset == header.tran_state_table_offset
            found.append(half)
        connection.sent.clear()
        return found

    async def check(self, after_s: float = 7.0) -> None:
        """One turn of checks, so much later."""
        self.clock.advance(after_s)
        await self.checks.check()

    def bodies(self, topic: str = "T", queue_id: int = 1) -> list[bytes]:
        """Return the bodies that a consumer gets from a queue."""
        return [each.body for each in read_queue(self.store, topic, queue_id)]

    def halves(self) -> list[MessageExt]:
        """Return all half messages."""
        return read_queue(self.store, HALF_TOPIC, 0)

    def ops(self) -> list[bytes]:
        """Return the bodies of all op messages."""
        return [each.body for each in read_queue(self.store, OP_TOPIC, 0)]

    def write_ops(self) -> None:
        """Bring the log to disk and write the op messages that were waiting for it."""
        self.store.flusher.flush()
        self.service.write_ops()

    def sync(self) -> None:
        """Bring the log to disk and keep the progress that was waiting for it."""
        self.service.keep_progress()
        self.store.flusher.flush()
        self.service.keep_progress()
