"""Request codes of the broker and their processors, one entry each (BrokerController.registerProcessor).

Only this table sees all parts of the broker; each processor gets the few that it needs.
"""

import os
import secrets

from rocketbroker.codec.message.message_id import UniqueIds
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.handler import Audience, MethodTable, Route
from rocketbroker.codec.remoting.headers.admin import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from rocketbroker.codec.remoting.headers.message import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    RecallMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.processor.admin_table import add_admin_codes
from rocketbroker.processor.check_client_config import CheckClientConfigProcessor
from rocketbroker.processor.consumer_send_msg_back import ConsumerSendMsgBackProcessor
from rocketbroker.processor.end_transaction import EndTransactionProcessor
from rocketbroker.processor.get_consumer_list_by_group import GetConsumerListByGroupProcessor
from rocketbroker.processor.heart_beat import HeartBeatProcessor
from rocketbroker.processor.lock_batch_mq import LockBatchMqProcessor, UnlockBatchMqProcessor
from rocketbroker.processor.pull_message import PullMessageProcessor
from rocketbroker.processor.query_consumer_offset import QueryConsumerOffsetProcessor
from rocketbroker.processor.recall_message import RecallMessageProcessor
from rocketbroker.processor.send_message import SendMessageProcessor
from rocketbroker.processor.send_reply_message import SendReplyMessageProcessor
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.broker_parts import BrokerParts
from rocketbroker.processor.support.heartbeat_limit import HeartbeatLimit
from rocketbroker.processor.support.pull_filter import PullFilter
from rocketbroker.processor.support.retry_and_dlq import RetryAndDlq
from rocketbroker.processor.support.slave_refusals import with_slave_refusals
from rocketbroker.processor.support.suggested_broker import SuggestedBroker
from rocketbroker.processor.support.topic_target import TopicTargets
from rocketbroker.processor.unregister_client import UnregisterClientProcessor
from rocketbroker.processor.update_consumer_offset import UpdateConsumerOffsetProcessor


def broker_routes(parts: BrokerParts) -> dict[int, Route]:
    """Route all codes that the broker serves."""
    table = MethodTable()
    # Shared, as in RocketMQ, where one thread pool serves sends and messages sent back.
    fast_failure = BrokerFastFailure(parts.config)
    _add_messages(table, parts, fast_failure)
    _add_clients(table, parts)
    add_admin_codes(table, parts, fast_failure)
    return with_slave_refusals(table.routes) if parts.config.broker_id != MASTER_ID else table.routes


def _add_messages(table: MethodTable, parts: BrokerParts, fast_failure: BrokerFastFailure) -> None:
    store = parts.store
    store_host = store.commit_log.store_host
    retry_and_dlq = RetryAndDlq(parts.subscription_groups, parts.topic_configs, parts.locks, parts.stats)
    targets = TopicTargets(parts.config, parts.topic_configs, parts.stats)
    send = SendMessageProcessor(
        parts.config,
        store.config,
        store.appender,
        store.acknowledgements,
        store_host,
        targets,
        retry_and_dlq,
        UniqueIds(store_host[:-4], os.getpid(), secrets.randbits(32), parts.clock.time_ms),
        parts.handle_schedule_message,
        fast_failure,
    )
    for code, header_type, runs in (
        (RequestCode.SEND_MESSAGE, SendMessageRequestHeader, send.runs),
        (RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, send.runs),
        (RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2, send.batch_runs),
    ):
        table.add(code, send.process, header_type, Audience.CLIENT, takes_large_bodies=True, runs=runs)
    reply = SendReplyMessageProcessor(
        parts.config,
        store.config,
        store.appender,
        store.acknowledgements,
        store_host,
        targets,
        parts.producers,
        parts.clock,
    ).process
    table.add(RequestCode.SEND_REPLY_MESSAGE, reply, SendMessageRequestHeader, Audience.CLIENT, takes_large_bodies=True)
    table.add(
        RequestCode.SEND_REPLY_MESSAGE_V2, reply, SendMessageRequestHeaderV2, Audience.CLIENT, takes_large_bodies=True
    )
    pull = PullMessageProcessor(
        parts.config,
        parts.store.fetcher,
        parts.topic_configs,
        parts.subscription_groups,
        PullFilter(parts.config, parts.consumers, parts.subscription_groups, parts.consumer_filters),
        parts.consumer_offsets,
        parts.stats,
        parts.hold_service,
        parts.send_backs,
        SuggestedBroker(parts.config, parts.store.fetcher, parts.has_master, parts.acting_as),
        parts.consumers,
    )
    table.add(RequestCode.PULL_MESSAGE, pull.process, PullMessageRequestHeader, Audience.CLIENT)
    table.add(RequestCode.LITE_PULL_MESSAGE, pull.process, PullMessageRequestHeader, Audience.CLIENT)
    send_back = ConsumerSendMsgBackProcessor(
        parts.config,
        parts.subscription_groups,
        parts.topic_configs,
        store.appender,
        store.queries,
        store.acknowledgements,
        store_host=store_host,
        schedule=parts.handle_schedule_message,
        stats=parts.stats,
        fast_failure=fast_failure,
        allowance=parts.send_backs,
    )
    table.add(RequestCode.CONSUMER_SEND_MSG_BACK, send_back.process, ConsumerSendMsgBackRequestHeader, Audience.CLIENT)
    end = EndTransactionProcessor(
        parts.config, store.queries, store.acknowledgements, parts.transactions, store_host, parts.clock
    )
    table.add(RequestCode.END_TRANSACTION, end.process, EndTransactionRequestHeader, Audience.CLIENT)
    recall = RecallMessageProcessor(
        parts.config,
        store.config,
        parts.topic_configs,
        store.appender,
        store.acknowledgements,
        store_host,
        parts.handle_schedule_message,
        parts.clock,
        parts.stats,
    )
    table.add(RequestCode.RECALL_MESSAGE, recall.process, RecallMessageRequestHeader, Audience.CLIENT)


def _add_clients(table: MethodTable, parts: BrokerParts) -> None:
    heart_beat = HeartBeatProcessor(
        parts.topic_configs,
        parts.subscription_groups,
        parts.consumers,
        parts.producers,
        parts.consumer_filters,
        parts.clock,
        HeartbeatLimit(parts.config, parts.consumers, parts.producers, parts.subscription_groups),
    )
    table.add(RequestCode.HEART_BEAT, heart_beat.process, audience=Audience.CLIENT)
    unregister = UnregisterClientProcessor(parts.consumers, parts.producers)
    table.add(RequestCode.UNREGISTER_CLIENT, unregister.process, UnregisterClientRequestHeader, Audience.CLIENT)
    table.add(
        RequestCode.CHECK_CLIENT_CONFIG, CheckClientConfigProcessor(parts.config).process, audience=Audience.CLIENT
    )
    consumer_list = GetConsumerListByGroupProcessor(parts.consumers)
    table.add(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        consumer_list.process,
        GetConsumerListByGroupRequestHeader,
        Audience.CLIENT,
    )
    query = QueryConsumerOffsetProcessor(parts.consumer_offsets, parts.store.fetcher)
    table.add(RequestCode.QUERY_CONSUMER_OFFSET, query.process, QueryConsumerOffsetRequestHeader, Audience.CLIENT)
    update = UpdateConsumerOffsetProcessor(
        parts.consumer_offsets,
        parts.subscription_groups,
        parts.topic_configs,
        parts.consumers,
        parts.store.queues,
        parts.offset_reset,
    )
    table.add(RequestCode.UPDATE_CONSUMER_OFFSET, update.process, UpdateConsumerOffsetRequestHeader, Audience.CLIENT)
    lock = LockBatchMqProcessor(
        parts.config, parts.locks, parts.topic_configs, parts.consumers, parts.subscription_groups
    )
    table.add(RequestCode.LOCK_BATCH_MQ, lock.process, audience=Audience.CLIENT)
    table.add(
        RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqProcessor(parts.config, parts.locks).process, audience=Audience.CLIENT
    )
