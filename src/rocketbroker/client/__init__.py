"""The client of RocketMQ brokers: producer, consumers, admin client.

The names below load what they need on first use: ``from rocketbroker.client import Message, Producer``.
"""

from typing import TYPE_CHECKING

from rocketbroker.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from rocketbroker.client.acl_client_rpc_hook import SessionCredentials as SessionCredentials
    from rocketbroker.client.admin_client import AdminClient as AdminClient
    from rocketbroker.client.client_config import ClientConfig as ClientConfig
    from rocketbroker.client.client_instance import ClientInstance as ClientInstance
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
    "BrokerNotFoundError": ".errors",
    "BrokerResponseError": "..common.errors",
    "ClientConfig": ".client_config",
    "ClientError": ".errors",
    "ClientInstance": ".client_instance",
    "ClientStateError": ".errors",
    "CompressionType": ".outgoing",
    "ConsumeFromWhere": "..codec.remoting.bodies.heartbeat",
    "ConsumerOptions": ".consumer.consumer_settings",
    "FlowControl": ".consumer.flow_control",
    "HandlerError": ".errors",
    "InvalidMessageError": ".errors",
    "LitePullConsumer": ".lite_pull_consumer",
    "LocalFileOffsetStore": ".consumer.offset_store",
    "LocalTransactionState": ".transaction_producer",
    "MachineRoomResolver": ".rebalance.allocate_message_queue",
    "Message": ".message",
    "MessageModel": "..codec.remoting.bodies.heartbeat",
    "MessageSelector": ".message_selector",
    "MessageType": ".message",
    "NameServerError": ".errors",
    "Outcome": ".consumer.received_message",
    "Producer": ".producer",
    "PullConsumer": ".pull_consumer",
    "PullResult": ".pull_result",
    "PullStatus": ".pull_result",
    "PushConsumer": ".push_consumer",
    "ReceivedMessage": ".consumer.received_message",
    "RemotingError": "..common.errors",
    "RequestTimeoutError": ".errors",
    "RocketBrokerError": "..common.errors",
    "SendFailedError": ".errors",
    "SendMessageContext": ".send_message_hook",
    "SendMessageHook": ".send_message_hook",
    "SendResult": ".send_result",
    "SendStatus": ".send_result",
    "SessionCredentials": ".acl_client_rpc_hook",
    "StartFrom": ".pull_consumer",
    "SubscriptionError": ".errors",
    "SyncClient": ".sync_client",
    "TopicRouteError": ".errors",
    "TransactionProducer": ".transaction_producer",
    "TransactionSendResult": ".transaction_producer",
}

__getattr__ = lazy_names(__name__, _HOMES)
