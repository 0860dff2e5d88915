"""Methods of the service: a request and its context in, a reply out (GrpcMessagingApplication).

A method that the class lacks is answered as unimplemented. A refusal is raised, as ``StatusError`` or as the broker's
``BrokerResponseError``, and answered in the body of the reply.
"""

from collections.abc import Sequence

from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.lifecycle import stop_all
from rocketbroker.proxy.call_context import CallContext
from rocketbroker.proxy.clients import Clients, TelemetryStream
from rocketbroker.proxy.consuming import Consuming
from rocketbroker.proxy.messaging_pb2 import (
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    Endpoints,
    EndTransactionRequest,
    EndTransactionResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    RecallMessageRequest,
    RecallMessageResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    TelemetryCommand,
)
from rocketbroker.proxy.producing import Producing
from rocketbroker.proxy.receipts import Receipts
from rocketbroker.proxy.routing import Routing
from rocketbroker.proxy.service_manager import ServiceManager
from rocketbroker.proxy.transactions import OpenTransactions


class MessagingService:
    """Answers of calls from clients and brokers; renewals of messages run from start to stop.

    Args:
        brokers: brokers and routes.
        endpoints: address of this front; it may change until the first call.
        clock: clock of messages.
        config: limits and times.
    """

    def __init__(
        self,
        brokers: ServiceManager,
        endpoints: Endpoints,
        clock: Clock | None = None,
        config: ProxyConfig | None = None,
    ) -> None:
        clock, config = clock or SystemClock(), config or ProxyConfig()
        transactions = OpenTransactions()
        self._receipts = receipts = Receipts(brokers, clock, config)
        self._clients = clients = Clients(brokers, transactions, config, receipts.release)
        self._routing = routing = Routing(brokers, endpoints, config)
        self._producing = Producing(brokers, routing, clients, transactions, clock, config)
        self._consuming = Consuming(brokers, routing, clients, receipts, clock, config)

    @property
    def follows_clients(self) -> bool:
        """Return true if routes have the address that a client asked at."""
        return self._routing.follows_clients

    async def start(self) -> None:
        """Begin to renew the invisible time of messages."""
        await self._receipts.start()

    async def stop(self) -> None:
        """Forget all clients, whose messages return to their groups; brokers must still be there."""
        await stop_all(self._consuming.stop, self._clients.forget_all, self._receipts.stop)

    # -- methods of the service

    async def query_route(self, request: QueryRouteRequest, context: CallContext) -> QueryRouteResponse:
        """Return the queues of a topic."""
        return await self._routing.query_route(request, context)

    async def query_assignment(self, request: QueryAssignmentRequest, context: CallContext) -> QueryAssignmentResponse:
        """Return the queues that a client of a group receives from."""
        return await self._routing.query_assignment(request, context)

    async def heartbeat(self, request: HeartbeatRequest, context: CallContext) -> HeartbeatResponse:
        """Register a client with the brokers again."""
        return await self._clients.heartbeat(request, context)

    async def notify_client_termination(
        self, request: NotifyClientTerminationRequest, context: CallContext
    ) -> NotifyClientTerminationResponse:
        """Forget a client."""
        return await self._clients.notify_client_termination(request, context)

    async def send_message(self, request: SendMessageRequest, context: CallContext) -> SendMessageResponse:
        """Store messages of one topic."""
        return await self._producing.send_message(request, context)

    async def end_transaction(self, request: EndTransactionRequest, context: CallContext) -> EndTransactionResponse:
        """Commit a transaction or roll it back."""
        return await self._producing.end_transaction(request, context)

    async def recall_message(self, request: RecallMessageRequest, context: CallContext) -> RecallMessageResponse:
        """Cancel a delayed message."""
        return await self._producing.recall_message(request, context)

    async def ack_message(self, request: AckMessageRequest, context: CallContext) -> AckMessageResponse:
        """Acknowledge messages."""
        return await self._consuming.ack_message(request, context)

    async def change_invisible_duration(
        self, request: ChangeInvisibleDurationRequest, context: CallContext
    ) -> ChangeInvisibleDurationResponse:
        """Let a message return at another time."""
        return await self._consuming.change_invisible_duration(request, context)

    async def forward_message_to_dead_letter_queue(
        self, request: ForwardMessageToDeadLetterQueueRequest, context: CallContext
    ) -> ForwardMessageToDeadLetterQueueResponse:
        """Make a message a dead letter."""
        return await self._consuming.forward_message_to_dead_letter_queue(request, context)

    async def receive_message(
        self, request: ReceiveMessageRequest, context: CallContext
    ) -> list[ReceiveMessageResponse]:
        """Return messages of a group, which no other of its clients gets for a time."""
        return await self._consuming.receive_message(request, context)

    async def telemetry(self, command: TelemetryCommand, context: CallContext, stream: TelemetryStream) -> None:
        """Take a command of a client."""
        await self._clients.telemetry(command, context, stream)

    # -- ends of streams and of clients

    def not_taken(
        self, request: ReceiveMessageRequest, replies: Sequence[ReceiveMessageResponse], context: CallContext
    ) -> None:
        """Return messages to their group that could not be sent to the client."""
        self._consuming.not_taken(request, replies, context)

    def telemetry_closed(self, context: CallContext, stream: TelemetryStream) -> None:
        """Forget the stream of a client, which may have opened another one since."""
        self._clients.telemetry_closed(context, stream)

    def telemetry_refused(self, context: CallContext, stream: TelemetryStream) -> None:
        """Forget a client whose stream ends since its user has lost a right, here and at the brokers."""
        self._clients.telemetry_refused(context, stream)

    def forget_silent(self, before: float) -> None:
        """Forget clients without a stream whose latest call was before a time of the event loop."""
        self._clients.forget_silent(before)
