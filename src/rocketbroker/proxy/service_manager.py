"""Protocol between the gRPC front and brokers, which a broker's processors or a client of a cluster can implement.

Each call is RocketMQ's remoting command in values, so that a send, a pop or a heartbeat means the same whoever asks. In
one process with a broker (LOCAL mode) ``invoke`` calls the processor that answers the code; in front of a cluster
(CLUSTER mode) it is a request over remoting. Neither decides anything about gRPC.
"""

from collections.abc import Awaitable
from typing import Protocol

from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.remoting_command import Command


class ProxyChannel(Protocol):
    """A client as the brokers see it: what a connection of remoting is to them, for as long as the client lives."""

    @property
    def client_id(self) -> str:
        """Id that is unique among all clients of the cluster (``x-mq-client-id``)."""

    @property
    def remote_address(self) -> str:
        """``ip:port`` of the client's latest connection."""

    def send_oneway(self, command: Command) -> bool:
        """Pass a broker's request on to the client, by its telemetry stream; return false if it has none.

        CHECK_TRANSACTION_STATE becomes RecoverOrphanedTransactionCommand. Others mean nothing to a client of gRPC,
        such as NOTIFY_CONSUMER_IDS_CHANGED, and are dropped.
        """

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        """Pass a broker's request on to the client, by its telemetry stream, and return the answer.

        CONSUME_MESSAGE_DIRECTLY becomes VerifyMessageCommand, GET_CONSUMER_RUNNING_INFO becomes
        PrintThreadStackTraceCommand.

        Raises:
            RemotingSendError: It has no stream, or closed it before it answered.
            RemotingTimeoutError: It did not answer in time.
        """


class ServiceManager(Protocol):
    """Brokers and routes behind the front (ServiceManager of Apache's proxy).

    All methods are called on the event loop and must not block it. They raise ``BrokerResponseError`` for an answer
    other than success where nothing else is said, and ``RemotingError`` if a broker cannot be reached.

    Attributes:
        is_cluster: there may be more fronts before the same brokers, and a load balancer before them.
    """

    is_cluster: bool

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return brokers and queues of a topic, without making it.

        In LOCAL mode the route has the broker itself alone.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, or another answer.
        """

    async def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic; its attribute ``message.type`` says what may be sent to it.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, or another answer.
        """

    async def subscription_group_config(self, group: str) -> SubscriptionGroupConfig:
        """Return the settings of a consumer group; a broker with ``autoCreateSubscriptionGroup`` makes an unknown one.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST, or another answer.
        """

    def invoke(self, channel: ProxyChannel, broker_name: str, command: Command) -> Command | Awaitable[Command]:
        """Send a request to the master of a broker; return the answer, whatever its code, or an awaitable of it.

        The header is a typed one; that of the answer may be a table (``call_context.header_of``), and its body is a
        copy. HEART_BEAT and UNREGISTER_CLIENT register the channel with the brokers' producers and consumers: an empty
        ``broker_name`` sends them to all brokers. An answer at hand is returned as such: a send without a wait costs no
        task.

        Raises:
            RemotingError: The broker cannot be reached, or did not answer in time.
        """

    def drop(self, channel: ProxyChannel, command: Command) -> None:
        """Forget a held request whose client waits no longer; its awaitable ends without messages, unless it has any.

        A broker that cannot forget it answers later, and its messages are given back.
        """

    def closed(self, channel: ProxyChannel) -> None:
        """Forget a client that is gone, at the brokers too."""


class LocalBroker(Protocol):
    """A broker in this process, as LOCAL mode needs it.

    Attributes:
        routes: handlers by request code.
        broker_name: its name.
        cluster_name: its cluster.
        address: ``ip:port`` of its remoting port.
    """

    routes: dict[int, Route]
    broker_name: str
    cluster_name: str
    address: str

    def topic_config(self, topic: str) -> TopicConfig | None:
        """Return the settings of a topic, ``None`` if there is none."""

    def subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group, which is made if it may be; ``None`` otherwise."""

    def end_batch(self) -> None:
        """Dispatch what the requests of this turn of the event loop stored."""

    def drop_held(self, connection: Connection, command: Command) -> None:
        """Forget a held request that nobody waits for any more."""

    def connection_closed(self, connection: Connection) -> None:
        """Forget a client that is gone."""
