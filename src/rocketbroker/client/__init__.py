"""The client of RocketMQ brokers: producer, consumers, admin client.

The names below load what they need on first use: ``from rocketbroker.client import Message, Producer``.
"""

from typing import TYPE_CHECKING

from rocketbroker.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from rocketbroker.client.admin.admin_client import AdminClient as AdminClient
    from rocketbroker.client.consumer.consume_hooks import ConsumeMessageHook as ConsumeMessageHook
    from rocketbroker.client.consumer.consumer_settings import ConsumerOptions as ConsumerOptions
    from rocketbroker.client.consumer.lite_pull_consumer import LitePullConsumer as LitePullConsumer
    from rocketbroker.client.consumer.offset_store import LocalFileOffsetStore as LocalFileOffsetStore
    from rocketbroker.client.consumer.process_queue import FlowControl as FlowControl
    from rocketbroker.client.consumer.pull_consumer import PullConsumer as PullConsumer
    from rocketbroker.client.consumer.pull_consumer import StartFrom as StartFrom
    from rocketbroker.client.consumer.push_consumer import PushConsumer as PushConsumer
    from rocketbroker.client.consumer.rebalance import AllocateMachineRoomNearby as AllocateMachineRoomNearby
    from rocketbroker.client.consumer.rebalance import AllocateMessageQueueAveragely as AllocateMessageQueueAveragely
    from rocketbroker.client.consumer.rebalance import (
        AllocateMessageQueueAveragelyByCircle as AllocateMessageQueueAveragelyByCircle,
    )
    from rocketbroker.client.consumer.rebalance import AllocateMessageQueueByConfig as AllocateMessageQueueByConfig
    from rocketbroker.client.consumer.rebalance import (
        AllocateMessageQueueByMachineRoom as AllocateMessageQueueByMachineRoom,
    )
    from rocketbroker.client.consumer.rebalance import (
        AllocateMessageQueueConsistentHash as AllocateMessageQueueConsistentHash,
    )
    from rocketbroker.client.consumer.rebalance import AllocateMessageQueueStrategy as AllocateMessageQueueStrategy
    from rocketbroker.client.consumer.rebalance import MachineRoomResolver as MachineRoomResolver
    from rocketbroker.client.core.client_config import ClientConfig as ClientConfig
    from rocketbroker.client.core.client_config import SessionCredentials as SessionCredentials
    from rocketbroker.client.core.client_instance import ClientInstance as ClientInstance
    from rocketbroker.client.core.errors import AllocationError as AllocationError
    from rocketbroker.client.core.errors import BrokerAnswerError as BrokerAnswerError
    from rocketbroker.client.core.errors import BrokerNotFoundError as BrokerNotFoundError
    from rocketbroker.client.core.errors import ClientError as ClientError
    from rocketbroker.client.core.errors import ClientStateError as ClientStateError
    from rocketbroker.client.core.errors import ConsumerNotOnlineError as ConsumerNotOnlineError
    from rocketbroker.client.core.errors import HandlerError as HandlerError
    from rocketbroker.client.core.errors import InvalidMessageError as InvalidMessageError
    from rocketbroker.client.core.errors import NameServerError as NameServerError
    from rocketbroker.client.core.errors import NoPermissionError as NoPermissionError
    from rocketbroker.client.core.errors import OptionError as OptionError
    from rocketbroker.client.core.errors import RequestCodeNotSupportedError as RequestCodeNotSupportedError
    from rocketbroker.client.core.errors import RequestTimeoutError as RequestTimeoutError
    from rocketbroker.client.core.errors import SendFailedError as SendFailedError
    from rocketbroker.client.core.errors import ServerFaultError as ServerFaultError
    from rocketbroker.client.core.errors import SubscriptionError as SubscriptionError
    from rocketbroker.client.core.errors import SystemBusyError as SystemBusyError
    from rocketbroker.client.core.errors import TopicNotExistError as TopicNotExistError
    from rocketbroker.client.core.errors import TopicRouteError as TopicRouteError
    from rocketbroker.client.core.message import Message as Message
    from rocketbroker.client.core.message import MessageType as MessageType
    from rocketbroker.client.core.message import SendMessageContext as SendMessageContext
    from rocketbroker.client.core.message import SendMessageHook as SendMessageHook
    from rocketbroker.client.core.message import SendResult as SendResult
    from rocketbroker.client.core.message import SendStatus as SendStatus
    from rocketbroker.client.core.pull_result import MessageSelector as MessageSelector
    from rocketbroker.client.core.pull_result import PullResult as PullResult
    from rocketbroker.client.core.pull_result import PullStatus as PullStatus
    from rocketbroker.client.core.received_message import Outcome as Outcome
    from rocketbroker.client.core.received_message import ReceivedMessage as ReceivedMessage
    from rocketbroker.client.producer.outgoing import CompressionType as CompressionType
    from rocketbroker.client.producer.producer import Producer as Producer
    from rocketbroker.client.producer.producer import ProducerOptions as ProducerOptions
    from rocketbroker.client.producer.transaction_producer import LocalTransactionState as LocalTransactionState
    from rocketbroker.client.producer.transaction_producer import TransactionProducer as TransactionProducer
    from rocketbroker.client.producer.transaction_producer import TransactionSendResult as TransactionSendResult
    from rocketbroker.client.sync_client import SyncClient as SyncClient
    from rocketbroker.client.trace.opentelemetry_hook import OpenTelemetryHook as OpenTelemetryHook
    from rocketbroker.client.trace.opentelemetry_hook import with_trace_context as with_trace_context
    from rocketbroker.codec.remoting.bodies.client import ConsumeFromWhere as ConsumeFromWhere
    from rocketbroker.codec.remoting.bodies.client import MessageModel as MessageModel
    from rocketbroker.common.errors import BrokerResponseError as BrokerResponseError
    from rocketbroker.common.errors import RemotingError as RemotingError
    from rocketbroker.common.errors import RocketBrokerError as RocketBrokerError

# Names of each module: the imports above, for the interpreter.
_NAMES = {
    "rocketbroker.client.admin.admin_client": "AdminClient",
    "rocketbroker.client.consumer.consume_hooks": "ConsumeMessageHook",
    "rocketbroker.client.consumer.consumer_settings": "ConsumerOptions",
    "rocketbroker.client.consumer.lite_pull_consumer": "LitePullConsumer",
    "rocketbroker.client.consumer.offset_store": "LocalFileOffsetStore",
    "rocketbroker.client.consumer.process_queue": "FlowControl",
    "rocketbroker.client.core.pull_result": "MessageSelector PullResult PullStatus",
    "rocketbroker.client.consumer.pull_consumer": "PullConsumer StartFrom",
    "rocketbroker.client.consumer.push_consumer": "PushConsumer",
    "rocketbroker.client.consumer.rebalance": (
        "AllocateMachineRoomNearby AllocateMessageQueueAveragely AllocateMessageQueueAveragelyByCircle "
        "AllocateMessageQueueByConfig AllocateMessageQueueByMachineRoom AllocateMessageQueueConsistentHash "
        "AllocateMessageQueueStrategy MachineRoomResolver"
    ),
    "rocketbroker.client.core.client_config": "ClientConfig SessionCredentials",
    "rocketbroker.client.core.client_instance": "ClientInstance",
    "rocketbroker.client.core.errors": (
        "AllocationError BrokerAnswerError BrokerNotFoundError ClientError ClientStateError ConsumerNotOnlineError "
        "HandlerError InvalidMessageError NameServerError NoPermissionError OptionError RequestCodeNotSupportedError "
        "RequestTimeoutError SendFailedError ServerFaultError SubscriptionError SystemBusyError TopicNotExistError "
        "TopicRouteError"
    ),
    "rocketbroker.client.core.message": "Message MessageType SendMessageContext SendMessageHook SendResult SendStatus",
    "rocketbroker.client.core.received_message": "Outcome ReceivedMessage",
    "rocketbroker.client.producer.outgoing": "CompressionType",
    "rocketbroker.client.producer.producer": "Producer ProducerOptions",
    "rocketbroker.client.producer.transaction_producer": (
        "LocalTransactionState TransactionProducer TransactionSendResult"
    ),
    "rocketbroker.client.sync_client": "SyncClient",
    "rocketbroker.client.trace.opentelemetry_hook": "OpenTelemetryHook with_trace_context",
    "rocketbroker.codec.remoting.bodies.client": "ConsumeFromWhere MessageModel",
    "rocketbroker.common.errors": "BrokerResponseError RemotingError RocketBrokerError",
}

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {name: module for module, names in _NAMES.items() for name in names.split()},
    optional=["rocketbroker.client.trace.opentelemetry_hook"],
)
