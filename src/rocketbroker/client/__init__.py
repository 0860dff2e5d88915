"""The client of RocketMQ brokers: producer, consumers, admin client.

The names below load what they need on first use: ``from rocketbroker.client import Message, Producer``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketbroker.client.admin_client import AdminClient as AdminClient
    from rocketbroker.client.client_instance import ClientInstance as ClientInstance
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
    from rocketbroker.client.errors import RequestTimeoutError as RequestTimeoutError
    from rocketbroker.client.errors import SendFailedError as SendFailedError
    from rocketbroker.client.errors import SubscriptionError as SubscriptionError
    from rocketbroker.client.errors import TopicRouteError as TopicRouteError
    from rocketbroker.client.lite_pull_consumer import LitePullConsumer as LitePullConsumer
    from rocketbroker.client.message import Message as Message
    from rocketbroker.client.message import MessageType as MessageType
    from rocketbroker.client.message_selector import MessageSelector as MessageSelector
    from rocketbroker.client.outgoing import CompressionType as CompressionType
    from rocketbroker.client.producer import Producer as Producer
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
    from rocketbroker.client.transaction_producer import LocalTransactionState as LocalTransactionState
    from rocketbroker.client.transaction_producer import TransactionProducer as TransactionProducer
    from rocketbroker.client.transaction_producer import TransactionSendResult as TransactionSendResult
    from rocketbroker.codec.remoting.bodies.heartbeat import ConsumeFromWhere as ConsumeFromWhere
    from rocketbroker.codec.remoting.bodies.heartbeat import MessageModel as MessageModel
    from rocketbroker.common.errors import BrokerResponseError as BrokerResponseError
    from rocketbroker.common.errors import RemotingError as RemotingError
    from rocketbroker.common.errors import RocketBrokerError as RocketBrokerError

_HOMES = {
    "AdminClient": "client.admin_client",
    "AllocateMachineRoomNearby": "client.rebalance.allocate_message_queue",
    "AllocateMessageQueueAveragely": "client.rebalance.allocate_message_queue",
    "AllocateMessageQueueAveragelyByCircle": "client.rebalance.allocate_message_queue",
    "AllocateMessageQueueByConfig": "client.rebalance.allocate_message_queue",
    "AllocateMessageQueueByMachineRoom": "client.rebalance.allocate_message_queue",
    "AllocateMessageQueueConsistentHash": "client.rebalance.allocate_message_queue",
    "AllocateMessageQueueStrategy": "client.rebalance.allocate_message_queue",
    "AllocationError": "client.errors",
    "BrokerNotFoundError": "client.errors",
    "BrokerResponseError": "common.errors",
    "ClientError": "client.errors",
    "ClientInstance": "client.client_instance",
    "ClientStateError": "client.errors",
    "CompressionType": "client.outgoing",
    "ConsumeFromWhere": "codec.remoting.bodies.heartbeat",
    "FlowControl": "client.consumer.flow_control",
    "HandlerError": "client.errors",
    "InvalidMessageError": "client.errors",
    "LitePullConsumer": "client.lite_pull_consumer",
    "LocalFileOffsetStore": "client.consumer.offset_store",
    "LocalTransactionState": "client.transaction_producer",
    "MachineRoomResolver": "client.rebalance.allocate_message_queue",
    "Message": "client.message",
    "MessageModel": "codec.remoting.bodies.heartbeat",
    "MessageSelector": "client.message_selector",
    "MessageType": "client.message",
    "NameServerError": "client.errors",
    "Outcome": "client.consumer.received_message",
    "Producer": "client.producer",
    "PullConsumer": "client.pull_consumer",
    "PullResult": "client.pull_result",
    "PullStatus": "client.pull_result",
    "PushConsumer": "client.push_consumer",
    "ReceivedMessage": "client.consumer.received_message",
    "RemotingError": "common.errors",
    "RequestTimeoutError": "client.errors",
    "RocketBrokerError": "common.errors",
    "SendFailedError": "client.errors",
    "SendMessageContext": "client.send_message_hook",
    "SendMessageHook": "client.send_message_hook",
    "SendResult": "client.send_result",
    "SendStatus": "client.send_result",
    "StartFrom": "client.pull_consumer",
    "SubscriptionError": "client.errors",
    "TopicRouteError": "client.errors",
    "TransactionProducer": "client.transaction_producer",
    "TransactionSendResult": "client.transaction_producer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"rocketbroker.{_HOMES[name]}"), name)
