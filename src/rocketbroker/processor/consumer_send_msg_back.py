"""CONSUMER_SEND_MSG_BACK (36): stores a message for a retry (AbstractSendMessageProcessor.consumerSendMsgBack)."""

import logging
import random
from collections.abc import Awaitable
from functools import partial
from typing import Final

from rocketbroker.auth.policies import Action
from rocketbroker.auth.requester import Requester
from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.message_copy import copy_message
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_const import (
    INNER_BATCH_FLAG,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import replace_property
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ_WRITE, PERM_WRITE, SubscriptionGroupConfig
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.message import ConsumerSendMsgBackRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.found_messages import check_found
from rocketbroker.processor.support.put_answers import acknowledged_answer, put_refusal
from rocketbroker.processor.support.request_checks import check_client_group
from rocketbroker.processor.support.request_family import NO_MESSAGES, Refusal, answers
from rocketbroker.processor.support.table_change import topic_waits
from rocketbroker.store.commitlog.put_message import Acknowledgements, PutMessageResult, PutMessageStatus
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.read.message_queries import MessageQueries

log = logging.getLogger(__name__)

DLQ_NUMS_PER_GROUP = 1
# The level of the first retry when the client leaves it to the broker: 10 s.
FIRST_RETRY_LEVEL = 3
# TopicSysFlag.buildSysFlag(false, true)
UNIT_SUB_FLAG = 2
# MQVersion.Version.V3_4_9.ordinal(): older clients send no usable maxReconsumeTimes.
V3_4_9 = 121
_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_SHOWN = 255
_SUB: Final = (Action.SUB,)
_AT_SLAVE = Refusal(ResponseCode.SYSTEM_BUSY, NO_MESSAGES)


class ConsumerSendMsgBackProcessor:
    """Stores a copy for ``%RETRY%<group>`` with a delay, or for ``%DLQ%<group>`` when its retries are used up.

    Under SYNC_FLUSH the answer waits until the copy is on disk, because the consumer then moves past the message.
    (Apache RocketMQ does not wait, since the copy has ``WAIT=false``.)

    Args:
        config: permission of the broker.
        subscription_groups: retry limits.
        topic_configs: table in which the retry and dead-letter topics are created.
        appender: append path of the copies.
        queries: look-up of the message.
        acknowledgements: acknowledgements of copies.
        store_host: the broker's address in the form of records.
        schedule: redirect of delayed messages to their system topic.
        stats: counters of messages sent back.
        fast_failure: limit of waiting sends, which includes messages sent back.
        allowance: bytes that each connection may send back.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a copy depends on
        self,
        config: BrokerConfig,
        subscription_groups: SubscriptionGroupManager,
        topic_configs: TopicConfigManager,
        appender: MessageAppender,
        queries: MessageQueries,
        acknowledgements: Acknowledgements,
        *,
        store_host: bytes,
        schedule: HandleScheduleMessage,
        stats: BrokerStatsManager,
        fast_failure: BrokerFastFailure,
        allowance: SendBackAllowance,
    ) -> None:
        self._config = config
        self._subscription_groups = subscription_groups
        self._topic_configs = topic_configs
        self._appender = appender
        self._queries = queries
        self._acknowledgements = acknowledgements
        self._store_host = store_host
        self._schedule = schedule
        self._stats = stats
        self._fast_failure = fast_failure
        self._allowance = allowance

    @answers(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        ConsumerSendMsgBackRequestHeader,
        Audience.CLIENT,
        at_slave=_AT_SLAVE,
        asks=True,
    )
    def consumer_send_msg_back(
        self,
        connection: Connection,
        command: RemotingCommand[ConsumerSendMsgBackRequestHeader],
        requester: Requester | None = None,
    ) -> Command | Awaitable[Command]:
        """Store a message for a retry, or as a dead letter.

        The answer is FLUSH_DISK_TIMEOUT if a sync for which it waits fails or takes too long.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST; NO_PERMISSION, also for a message of a topic that the
                user may not read; SYSTEM_ERROR if no message is at the offset; SYSTEM_BUSY if too many are not
                acknowledged, or more bytes are sent back than were pulled; the codes of a send if the copy could not
                be stored.
        """
        if self._acknowledgements.required or connection.waited_s:
            self._fast_failure.check(connection)
        else:
            self._fast_failure.begin_put()
        header = command.header
        check_client_group(header.group, connection)
        if requester is not None and requester.is_limited:  # before a group or a topic is made for it
            check_found(requester, self._find(header.offset), _SUB, header.group)
        group = self._writable_group(connection, header.group)
        if group.retry_queue_nums <= 0:
            return response()
        retry_topic = self._retry_topic(connection, header, group)
        found = self._find(header.offset)
        self._check_allowed(connection, found)
        limit = group.retry_max_times
        if header.max_reconsume_times is not None and command.version >= V3_4_9:
            limit = header.max_reconsume_times
        is_dlq = header.delay_level < 0 or found.reconsume_times >= limit
        if is_dlq:
            topic, queue_nums, delay_level = self._dlq_topic(connection, header.group), DLQ_NUMS_PER_GROUP, 0
        else:
            topic, queue_nums = retry_topic, group.retry_queue_nums
            delay_level = header.delay_level or FIRST_RETRY_LEVEL + found.reconsume_times
        queue_id = random.randrange(queue_nums)
        result = self._store_copy(found, topic, queue_id, delay_level)
        self._count(found, header.group, is_dlq=is_dlq)
        waits = topic_waits(self._topic_configs, (topic, queue_id))
        if not waits and not self._acknowledgements.required:
            return response()
        wait = self._acknowledgements.wait_for(result, waits)
        return self._fast_failure.answer_when_acknowledged(wait, partial(acknowledged_answer, response()))

    def _writable_group(self, connection: Connection, name: str) -> SubscriptionGroupConfig:
        group = self._subscription_groups.find(name, connection.share)
        if group is None:
            remark = f"subscription group not exist, {name[:_SHOWN]} {_FAQ}"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._config.broker_permission & PERM_WRITE:
            remark = (
                f"the broker[{self._config.broker_ip1}] sending message is forbidden: its brokerPermission is "
                f"{self._config.broker_permission}, which lacks write (2)"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        return group

    def _retry_topic(
        self, connection: Connection, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig
    ) -> str:
        topic = self._topic_configs.create_in_send_message_back(
            RETRY_GROUP_TOPIC_PREFIX + header.group,
            group.retry_queue_nums,
            PERM_READ_WRITE,
            UNIT_SUB_FLAG if header.unit_mode else 0,
            share=connection.share,
        )
        if not topic.perm & PERM_WRITE:
            remark = (
                f"the topic[{topic.topic_name}] sending message is forbidden: its perm is {topic.perm}, "
                "which lacks write (2)"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        return topic.topic_name

    def _dlq_topic(self, connection: Connection, group: str) -> str:
        name = DLQ_GROUP_TOPIC_PREFIX + group
        self._topic_configs.create_in_send_message_back(
            name, DLQ_NUMS_PER_GROUP, PERM_READ_WRITE, share=connection.share
        )
        return name

    def _find(self, physical_offset: int) -> MessageExt:
        record = self._queries.queued_message(physical_offset) if physical_offset >= 0 else None
        if record is None:
            remark = f"look message by offset failed, {physical_offset}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        found = decode_record(record)
        if found.sys_flag & INNER_BATCH_FLAG:
            # A Java client then sends this one message again.
            remark = (
                f"the message at {physical_offset} is part of a batch in one record, of topic {found.topic} with "
                "queue.type=BatchCQ, and cannot be sent back by itself; send a copy of it to the retry topic"
            )
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)
        return found

    def _check_allowed(self, connection: Connection, found: MessageExt) -> None:
        if not self._allowance.take(connection, found.store_size):
            rate = self._config.consumer_send_msg_back_bytes_per_second
            remark = (
                f"consumerSendMsgBackBytesPerSecond: {found.store_size:,} bytes exceed what this connection "
                f"has pulled and the rate of {rate:,}; send the message to the retry topic, send it back later, "
                "or raise consumerSendMsgBackBytesPerSecond"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)

    def _store_copy(self, found: MessageExt, topic: str, queue_id: int, delay_level: int) -> PutMessageResult:
        properties = found.properties_bytes
        for name, value in (
            (PROPERTY_RETRY_TOPIC, found.get_property(PROPERTY_RETRY_TOPIC) or found.topic),
            (PROPERTY_WAIT_STORE_MSG_OK, "false"),
            (PROPERTY_DELAY_TIME_LEVEL, str(delay_level)),
            (PROPERTY_ORIGIN_MESSAGE_ID, found.get_property(PROPERTY_ORIGIN_MESSAGE_ID) or found.offset_msg_id),
        ):
            properties = replace_property(properties, name.encode(), value.encode())
        message = copy_message(
            found,
            topic,
            queue_id,
            self._store_host,
            properties=properties,
            reconsume_times=found.reconsume_times + 1,
        )
        self._schedule(message)
        result = self._appender.put_copy(message)
        stats = self._stats.topic_put(message.topic)
        if result.status is not PutMessageStatus.PUT_OK:
            stats.misses += 1
            raise put_refusal(result)
        stats.add(1, result.size)
        return result

    def _count(self, found: MessageExt, group: str, *, is_dlq: bool) -> None:
        topic = found.get_property(PROPERTY_RETRY_TOPIC) or found.topic
        self._stats.send_back(topic, group).add(1, found.store_size)
        if is_dlq:
            self._stats.dead_letter(topic, group).add(1, found.store_size)
            log.info(
                "message %s of topic %s goes to the dead letters of group %s",
                found.uniq_key or found.offset_msg_id,
                topic,
                group,
            )
