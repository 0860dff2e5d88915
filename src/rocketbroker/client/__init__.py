"""The client of RocketMQ brokers: producer, consumers, admin client.

The names below load what they need on first use: ``from rocketbroker.client import Message, Producer``.
"""

from typing import TYPE_CHECKING

from rocketbroker.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from rocketbroker.client.acl_client_rpc_hook import SessionCredentials as SessionCredentials
    from rocketbroker.client.admin_client import AdminClient as AdminClient
    from rocketbroker.client.broker_errors import BroadcastConsumptionError as BroadcastConsumptionError
    from rocketbroker.client.broker_errors import BrokerAnswerError as BrokerAnswerError
    from rocketbroker.client.broker_errors import BrokerDispatchNotCompleteError as BrokerDispatchNotCompleteError
    from rocketbroker.client.broker_errors import BrokerNotExistError as BrokerNotExistError
    from rocketbroker.client.broker_errors import ConsumeMsgTimeoutError as ConsumeMsgTimeoutError
    from rocketbroker.client.broker_errors import ConsumerNotOnlineError as ConsumerNotOnlineError
    from rocketbroker.client.broker_errors import FilterDataNotExistError as FilterDataNotExistError
    from rocketbroker.client.broker_errors import FilterDataNotLatestError as FilterDataNotLatestError
    from rocketbroker.client.broker_errors import FlowControlError as FlowControlError
    from rocketbroker.client.broker_errors import FlushDiskTimeoutError as FlushDiskTimeoutError
    from rocketbroker.client.broker_errors import FlushSlaveTimeoutError as FlushSlaveTimeoutError
    from rocketbroker.client.broker_errors import GoAwayError as GoAwayError
    from rocketbroker.client.broker_errors import IllegalOperationError as IllegalOperationError
    from rocketbroker.client.broker_errors import InvalidParameterError as InvalidParameterError
    from rocketbroker.client.broker_errors import (
        LiteSubscriptionQuotaExceededError as LiteSubscriptionQuotaExceededError,
    )
    from rocketbroker.client.broker_errors import LmqQuotaExceededError as LmqQuotaExceededError
    from rocketbroker.client.broker_errors import MessageIllegalAnswerError as MessageIllegalAnswerError
    from rocketbroker.client.broker_errors import NoBuyerIdError as NoBuyerIdError
    from rocketbroker.client.broker_errors import NoMessageError as NoMessageError
    from rocketbroker.client.broker_errors import NoPermissionError as NoPermissionError
    from rocketbroker.client.broker_errors import NotInCurrentUnitError as NotInCurrentUnitError
    from rocketbroker.client.broker_errors import NotLeaderForQueueError as NotLeaderForQueueError
    from rocketbroker.client.broker_errors import PolicyNotExistError as PolicyNotExistError
    from rocketbroker.client.broker_errors import PollingFullError as PollingFullError
    from rocketbroker.client.broker_errors import PollingTimeoutError as PollingTimeoutError
    from rocketbroker.client.broker_errors import PullNotFoundError as PullNotFoundError
    from rocketbroker.client.broker_errors import PullOffsetMovedError as PullOffsetMovedError
    from rocketbroker.client.broker_errors import PullRetryImmediatelyError as PullRetryImmediatelyError
    from rocketbroker.client.broker_errors import QueryNotFoundError as QueryNotFoundError
    from rocketbroker.client.broker_errors import RequestCodeNotSupportedError as RequestCodeNotSupportedError
    from rocketbroker.client.broker_errors import ServerFaultError as ServerFaultError
    from rocketbroker.client.broker_errors import ServiceNotAvailableError as ServiceNotAvailableError
    from rocketbroker.client.broker_errors import SlaveNotAvailableError as SlaveNotAvailableError
    from rocketbroker.client.broker_errors import SubscriptionGroupNotExistError as SubscriptionGroupNotExistError
    from rocketbroker.client.broker_errors import SubscriptionNotExistError as SubscriptionNotExistError
    from rocketbroker.client.broker_errors import SubscriptionNotLatestError as SubscriptionNotLatestError
    from rocketbroker.client.broker_errors import SubscriptionParseFailedError as SubscriptionParseFailedError
    from rocketbroker.client.broker_errors import SystemBusyError as SystemBusyError
    from rocketbroker.client.broker_errors import TopicExistAlreadyError as TopicExistAlreadyError
    from rocketbroker.client.broker_errors import TopicNotExistError as TopicNotExistError
    from rocketbroker.client.broker_errors import TransactionFailedError as TransactionFailedError
    from rocketbroker.client.broker_errors import TransactionShouldCommitError as TransactionShouldCommitError
    from rocketbroker.client.broker_errors import TransactionShouldRollbackError as TransactionShouldRollbackError
    from rocketbroker.client.broker_errors import TransactionStateGroupWrongError as TransactionStateGroupWrongError
    from rocketbroker.client.broker_errors import TransactionStateUnknownError as TransactionStateUnknownError
    from rocketbroker.client.broker_errors import UserNotExistError as UserNotExistError
    from rocketbroker.client.broker_errors import VersionNotSupportedError as VersionNotSupportedError
    from rocketbroker.client.client_config import ClientConfig as ClientConfig
    from rocketbroker.client.client_instance import ClientInstance as ClientInstance
    from rocketbroker.client.consume_message_hook import ConsumeMessageHook as ConsumeMessageHook
    from rocketbroker.client.consumer.consumer_settings import ConsumerOptions as ConsumerOptions
    from rocketbroker.client.consumer.flow_control import FlowControl as FlowControl
    from rocketbroker.client.consumer.offset_store import LocalFileOffsetStore as LocalFileOffsetStore
    from rocketbroker.client.consumer.received_message import Outcome as Outcome
    from rocketbroker.client.consumer.received_message import ReceivedMessage as ReceivedMessage
    from rocketbroker.client.errors import AllocationError as AllocationError
    from rocketbroker.client.errors import BrokerNotFoundError as BrokerNotFoundError
    from rocketbroker.client.errors import ClientError as ClientError
    from rocketbroker.client.errors import ClientStateError as ClientStateError
    from rocketbroker.client.errors import HandlerError as HandlerError
    from rocketbroker.client.errors import InvalidMessageError as InvalidMessageError
    from rocketbroker.client.errors import NameServerError as NameServerError
    from rocketbroker.client.errors import OptionError as OptionError
    from rocketbroker.client.errors import RequestTimeoutError as RequestTimeoutError
    from rocketbroker.client.errors import SendFailedError as SendFailedError
    from rocketbroker.client.errors import SubscriptionError as SubscriptionError
    from rocketbroker.client.errors import TopicRouteError as TopicRouteError
    from rocketbroker.client.lite_pull_consumer import LitePullConsumer as LitePullConsumer
    from rocketbroker.client.message import Message as Message
    from rocketbroker.client.message import MessageType as MessageType
    from rocketbroker.client.message_selector import MessageSelector as MessageSelector
    from rocketbroker.client.opentelemetry_hook import OpenTelemetryHook as OpenTelemetryHook
    from rocketbroker.client.opentelemetry_hook import with_trace_context as with_trace_context
    from rocketbroker.client.outgoing import CompressionType as CompressionType
    from rocketbroker.client.producer import Producer as Producer
    from rocketbroker.client.producer_settings import ProducerOptions as ProducerOptions
    from rocketbroker.client.pull_consumer import PullConsumer as PullConsumer
    from rocketbroker.client.pull_consumer import StartFrom as StartFrom
    from rocketbroker.client.pull_result import PullResult as PullResult
    from rocketbroker.client.pull_result import PullStatus as PullStatus
    from rocketbroker.client.push_consumer import PushConsumer as PushConsumer
    from rocketbroker.client.rebalance.allocate_message_queue import (
        AllocateMachineRoomNearby as AllocateMachineRoomNearby,
    )
    from rocketbroker.client.rebalance.allocate_message_queue import (
        AllocateMessageQueueAveragely as AllocateMessageQueueAveragely,
    )
    from rocketbroker.client.rebalance.allocate_message_queue import (
        AllocateMessageQueueAveragelyByCircle as AllocateMessageQueueAveragelyByCircle,
    )
    from rocketbroker.client.rebalance.allocate_message_queue import (
        AllocateMessageQueueByConfig as AllocateMessageQueueByConfig,
    )
    from rocketbroker.client.rebalance.allocate_message_queue import (
        AllocateMessageQueueByMachineRoom as AllocateMessageQueueByMachineRoom,
    )
    from rocketbroker.client.rebalance.allocate_message_queue import (
        AllocateMessageQueueConsistentHash as AllocateMessageQueueConsistentHash,
    )
    from rocketbroker.client.rebalance.allocate_message_queue import (
        AllocateMessageQueueStrategy as AllocateMessageQueueStrategy,
    )
    from rocketbroker.client.rebalance.allocate_message_queue import MachineRoomResolver as MachineRoomResolver
    from rocketbroker.client.send_message_hook import SendMessageContext as SendMessageContext
    from rocketbroker.client.send_message_hook import SendMessageHook as SendMessageHook
    from rocketbroker.client.send_result import SendResult as SendResult
    from rocketbroker.client.send_result import SendStatus as SendStatus
    from rocketbroker.client.sync_client import SyncClient as SyncClient
    from rocketbroker.client.transaction_producer import LocalTransactionState as LocalTransactionState
    from rocketbroker.client.transaction_producer import TransactionProducer as TransactionProducer
    from rocketbroker.client.transaction_producer import TransactionSendResult as TransactionSendResult
    from rocketbroker.codec.remoting.bodies.heartbeat import ConsumeFromWhere as ConsumeFromWhere
    from rocketbroker.codec.remoting.bodies.heartbeat import MessageModel as MessageModel
    from rocketbroker.common.errors import BrokerResponseError as BrokerResponseError
    from rocketbroker.common.errors import RemotingError as RemotingError
    from rocketbroker.common.errors import RocketBrokerError as RocketBrokerError

_HOMES = {
    "AdminClient": ".admin_client",
    "AllocateMachineRoomNearby": ".rebalance.allocate_message_queue",
    "AllocateMessageQueueAveragely": ".rebalance.allocate_message_queue",
    "AllocateMessageQueueAveragelyByCircle": ".rebalance.allocate_message_queue",
    "AllocateMessageQueueByConfig": ".rebalance.allocate_message_queue",
    "AllocateMessageQueueByMachineRoom": ".rebalance.allocate_message_queue",
    "AllocateMessageQueueConsistentHash": ".rebalance.allocate_message_queue",
    "AllocateMessageQueueStrategy": ".rebalance.allocate_message_queue",
    "AllocationError": ".errors",
    "BroadcastConsumptionError": ".broker_errors",
    "BrokerAnswerError": ".broker_errors",
    "BrokerDispatchNotCompleteError": ".broker_errors",
    "BrokerNotExistError": ".broker_errors",
    "BrokerNotFoundError": ".errors",
    "BrokerResponseError": "..common.errors",
    "ClientConfig": ".client_config",
    "ClientError": ".errors",
    "ClientInstance": ".client_instance",
    "ClientStateError": ".errors",
    "CompressionType": ".outgoing",
    "ConsumeMessageHook": ".consume_message_hook",
    "ConsumeFromWhere": "..codec.remoting.bodies.heartbeat",
    "ConsumeMsgTimeoutError": ".broker_errors",
    "ConsumerNotOnlineError": ".broker_errors",
    "ConsumerOptions": ".consumer.consumer_settings",
    "FilterDataNotExistError": ".broker_errors",
    "FilterDataNotLatestError": ".broker_errors",
    "FlowControl": ".consumer.flow_control",
    "FlowControlError": ".broker_errors",
    "FlushDiskTimeoutError": ".broker_errors",
    "FlushSlaveTimeoutError": ".broker_errors",
    "GoAwayError": ".broker_errors",
    "HandlerError": ".errors",
    "IllegalOperationError": ".broker_errors",
    "InvalidMessageError": ".errors",
    "InvalidParameterError": ".broker_errors",
    "LitePullConsumer": ".lite_pull_consumer",
    "LiteSubscriptionQuotaExceededError": ".broker_errors",
    "LmqQuotaExceededError": ".broker_errors",
    "LocalFileOffsetStore": ".consumer.offset_store",
    "LocalTransactionState": ".transaction_producer",
    "MachineRoomResolver": ".rebalance.allocate_message_queue",
    "Message": ".message",
    "MessageIllegalAnswerError": ".broker_errors",
    "MessageModel": "..codec.remoting.bodies.heartbeat",
    "MessageSelector": ".message_selector",
    "MessageType": ".message",
    "NameServerError": ".errors",
    "NoBuyerIdError": ".broker_errors",
    "NoMessageError": ".broker_errors",
    "NoPermissionError": ".broker_errors",
    "NotInCurrentUnitError": ".broker_errors",
    "NotLeaderForQueueError": ".broker_errors",
    "OpenTelemetryHook": ".opentelemetry_hook",
    "OptionError": ".errors",
    "Outcome": ".consumer.received_message",
    "PolicyNotExistError": ".broker_errors",
    "PollingFullError": ".broker_errors",
    "PollingTimeoutError": ".broker_errors",
    "Producer": ".producer",
    "ProducerOptions": ".producer_settings",
    "PullConsumer": ".pull_consumer",
    "PullNotFoundError": ".broker_errors",
    "PullOffsetMovedError": ".broker_errors",
    "PullResult": ".pull_result",
    "PullRetryImmediatelyError": ".broker_errors",
    "PullStatus": ".pull_result",
    "PushConsumer": ".push_consumer",
    "QueryNotFoundError": ".broker_errors",
    "ReceivedMessage": ".consumer.received_message",
    "RemotingError": "..common.errors",
    "RequestCodeNotSupportedError": ".broker_errors",
    "RequestTimeoutError": ".errors",
    "RocketBrokerError": "..common.errors",
    "SendFailedError": ".errors",
    "SendMessageContext": ".send_message_hook",
    "SendMessageHook": ".send_message_hook",
    "SendResult": ".send_result",
    "SendStatus": ".send_result",
    "ServerFaultError": ".broker_errors",
    "ServiceNotAvailableError": ".broker_errors",
    "SessionCredentials": ".acl_client_rpc_hook",
    "SlaveNotAvailableError": ".broker_errors",
    "StartFrom": ".pull_consumer",
    "SubscriptionError": ".errors",
    "SubscriptionGroupNotExistError": ".broker_errors",
    "SubscriptionNotExistError": ".broker_errors",
    "SubscriptionNotLatestError": ".broker_errors",
    "SubscriptionParseFailedError": ".broker_errors",
    "SyncClient": ".sync_client",
    "SystemBusyError": ".broker_errors",
    "TopicExistAlreadyError": ".broker_errors",
    "TopicNotExistError": ".broker_errors",
    "TopicRouteError": ".errors",
    "TransactionFailedError": ".broker_errors",
    "TransactionProducer": ".transaction_producer",
    "TransactionSendResult": ".transaction_producer",
    "with_trace_context": ".opentelemetry_hook",
    "TransactionShouldCommitError": ".broker_errors",
    "TransactionShouldRollbackError": ".broker_errors",
    "TransactionStateGroupWrongError": ".broker_errors",
    "TransactionStateUnknownError": ".broker_errors",
    "UserNotExistError": ".broker_errors",
    "VersionNotSupportedError": ".broker_errors",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES, optional=[".opentelemetry_hook"])
