"""Methods of the service: a request and its context in, a reply out (GrpcMessagingApplication).

A method that the class lacks is answered as unimplemented. A refusal is raised, as ``StatusError`` or as the broker's
``BrokerResponseError``, and answered in the body of the reply. ``receive_message`` raises none: its replies have it.
"""

from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.lifecycle import stop_all
from rocketbroker.proxy.call_context import status_of
from rocketbroker.proxy.clients import Clients, TelemetryStream
from rocketbroker.proxy.consuming import Consuming
from rocketbroker.proxy.messaging_pb2 import Endpoints
from rocketbroker.proxy.producing import Producing
from rocketbroker.proxy.receipts import Receipts
from rocketbroker.proxy.routing import Routing
from rocketbroker.proxy.service_manager import ServiceManager
from rocketbroker.proxy.transactions import OpenTransactions

__all__ = ["MessagingService", "TelemetryStream", "status_of"]


class MessagingService:
    """Answers of calls from clients and brokers; what they need while no call is under way runs from start to stop.

    Args:
        brokers: brokers and routes.
        endpoints: address of this front, which routes have for each broker.
        clock: clock of messages.
    """

    def __init__(self, brokers: ServiceManager, endpoints: Endpoints, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        transactions = OpenTransactions()
        self._receipts = receipts = Receipts(brokers, clock)
        self._clients = clients = Clients(brokers, transactions, receipts.release)
        routing = Routing(brokers, endpoints)
        producing = Producing(brokers, routing, clients, transactions, clock)
        consuming = Consuming(brokers, routing, clients, receipts, clock)

        self.query_route = routing.query_route
        self.query_assignment = routing.query_assignment
        self.telemetry = clients.telemetry
        self.heartbeat = clients.heartbeat
        self.notify_client_termination = clients.notify_client_termination
        self.send_message = producing.send_message
        self.end_transaction = producing.end_transaction
        self.recall_message = producing.recall_message
        self.receive_message = consuming.receive_message
        self.ack_message = consuming.ack_message
        self.change_invisible_duration = consuming.change_invisible_duration
        self.forward_message_to_dead_letter_queue = consuming.forward_message_to_dead_letter_queue
        # Not methods of the service: ends of streams and of clients.
        self.telemetry_closed = clients.telemetry_closed
        self.forget_silent = clients.forget_silent

    async def start(self) -> None:
        """Begin to renew the invisible time of messages."""
        await self._receipts.start()

    async def stop(self) -> None:
        """Forget all clients, whose messages return to their groups."""
        await stop_all(self._clients.forget_all, self._receipts.stop)
