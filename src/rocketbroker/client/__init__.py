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
    from rocketbroker.codec.remoting.bodies.client import ConsumeFromWhere as ConsumeFromWhere
    from rocketbroker.codec.remoting.bodies.client import MessageModel as MessageModel
    from rocketbroker.common.errors import BrokerResponseError as BrokerResponseError
    from rocketbroker.common.errors import RemotingError as RemotingError
    from rocketbroker.common.errors import RocketBrokerError as RocketBrokerError

# Names of each module: the imports above, for the interpreter.
_NAMES = {
    "rocketbroker.client.acl_client_rpc_hook": ("SessionCredentials",),
    "rocketbroker.client.admin_client": ("AdminClient",),
    "rocketbroker.client.broker_errors": (
        "BroadcastConsumptionError",
        "BrokerAnswerError",
        "BrokerDispatchNotCompleteError",
        "BrokerNotExistError",
        "ConsumeMsgTimeoutError",
        "ConsumerNotOnlineError",
        "FilterDataNotExistError",
        "FilterDataNotLatestError",
        "FlowControlError",
        "FlushDiskTimeoutError",
        "FlushSlaveTimeoutError",
        "GoAwayError",
        "IllegalOperationError",
        "InvalidParameterError",
        "LiteSubscriptionQuotaExceededError",
        "LmqQuotaExceededError",
        "MessageIllegalAnswerError",
        "NoBuyerIdError",
        "NoMessageError",
        "NoPermissionError",
        "NotInCurrentUnitError",
        "NotLeaderForQueueError",
        "PolicyNotExistError",
        "PollingFullError",
        "PollingTimeoutError",
        "PullNotFoundError",
        "PullOffsetMovedError",
        "PullRetryImmediatelyError",
        "QueryNotFoundError",
        "RequestCodeNotSupportedError",
        "ServerFaultError",
        "ServiceNotAvailableError",
        "SlaveNotAvailableError",
        "SubscriptionGroupNotExistError",
        "SubscriptionNotExistError",
        "SubscriptionNotLatestError",
        "SubscriptionParseFailedError",
        "SystemBusyError",
        "TopicExistAlreadyError",
        "TopicNotExistError",
        "TransactionFailedError",
        "TransactionShouldCommitError",
        "TransactionShouldRollbackError",
        "TransactionStateGroupWrongError",
        "TransactionStateUnknownError",
        "UserNotExistError",
        "VersionNotSupportedError",
    ),
    "rocketbroker.client.client_config": ("ClientConfig",),
    "rocketbroker.client.client_instance": ("ClientInstance",),
    "rocketbroker.client.consume_message_hook": ("ConsumeMessageHook",),
    "rocketbroker.client.consumer.consumer_settings": ("ConsumerOptions",),
    "rocketbroker.client.consumer.flow_control": ("FlowControl",),
    "rocketbroker.client.consumer.offset_store": ("LocalFileOffsetStore",),
    "rocketbroker.client.consumer.received_message": (
        "Outcome",
        "ReceivedMessage",
    ),
    "rocketbroker.client.errors": (
        "AllocationError",
        "BrokerNotFoundError",
        "ClientError",
        "ClientStateError",
        "HandlerError",
        "InvalidMessageError",
        "NameServerError",
        "OptionError",
        "RequestTimeoutError",
        "SendFailedError",
        "SubscriptionError",
        "TopicRouteError",
    ),
    "rocketbroker.client.lite_pull_consumer": ("LitePullConsumer",),
    "rocketbroker.client.message": (
        "Message",
        "MessageType",
    ),
    "rocketbroker.client.message_selector": ("MessageSelector",),
    "rocketbroker.client.opentelemetry_hook": (
        "OpenTelemetryHook",
        "with_trace_context",
    ),
    "rocketbroker.client.outgoing": ("CompressionType",),
    "rocketbroker.client.producer": ("Producer",),
    "rocketbroker.client.producer_settings": ("ProducerOptions",),
    "rocketbroker.client.pull_consumer": (
        "PullConsumer",
        "StartFrom",
    ),
    "rocketbroker.client.pull_result": (
        "PullResult",
        "PullStatus",
    ),
    "rocketbroker.client.push_consumer": ("PushConsumer",),
    "rocketbroker.client.rebalance.allocate_message_queue": (
        "AllocateMachineRoomNearby",
        "AllocateMessageQueueAveragely",
        "AllocateMessageQueueAveragelyByCircle",
        "AllocateMessageQueueByConfig",
        "AllocateMessageQueueByMachineRoom",
        "AllocateMessageQueueConsistentHash",
        "AllocateMessageQueueStrategy",
        "MachineRoomResolver",
    ),
    "rocketbroker.client.send_message_hook": (
        "SendMessageContext",
        "SendMessageHook",
    ),
    "rocketbroker.client.send_result": (
        "SendResult",
        "SendStatus",
    ),
    "rocketbroker.client.sync_client": ("SyncClient",),
    "rocketbroker.client.transaction_producer": (
        "LocalTransactionState",
        "TransactionProducer",
        "TransactionSendResult",
    ),
    "rocketbroker.codec.remoting.bodies.client": (
        "ConsumeFromWhere",
        "MessageModel",
    ),
    "rocketbroker.common.errors": (
        "BrokerResponseError",
        "RemotingError",
        "RocketBrokerError",
    ),
}

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {name: module for module, names in _NAMES.items() for name in names},
    optional=["rocketbroker.client.opentelemetry_hook"],
)
