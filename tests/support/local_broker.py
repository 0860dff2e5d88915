"""A broker without its network behind a gRPC front, for tests: its real processors and store, in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.grpc_port import InProcessBroker
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.common.clock import Clock
from rocketbroker.proxy.local_service_manager import LocalServiceManager
from rocketbroker.proxy.messaging_service import MessagingService
from tests.support.proxy_brokers import ENDPOINTS
from tests.support.running import running, stopping


class ControlledBroker(InProcessBroker):
    """The broker of a controller, to which topics and groups are added."""

    def __init__(self, controller: BrokerController) -> None:
        super().__init__(controller._settings.broker, controller, controller.polling)
        self.controller = controller

    def add_topic(self, name: str, message_type: str = "", queues: int = 4) -> None:
        """Make a topic that takes messages of a type."""
        attributes = {"+message.type": message_type} if message_type else {}
        self.controller.topic_configs.update(TopicConfig(name, queues, queues, attributes=attributes))

    def add_group(self, name: str, *, is_fifo: bool = False, retry_max_times: int = 16) -> None:
        """Make a consumer group."""
        group = SubscriptionGroupConfig(name, consume_message_orderly=is_fifo, retry_max_times=retry_max_times)
        self.controller.subscription_groups.update(group)


@asynccontextmanager
async def served_broker(
    folder: Path, clock: Clock | None = None, **settings: str
) -> AsyncIterator[tuple[ControlledBroker, MessagingService]]:
    """Run a broker and the methods of the gRPC service on it."""
    controller = BrokerController.bind(broker_settings(0, folder, "", properties=settings), clock)
    async with running(controller):
        broker = ControlledBroker(controller)
        async with stopping(LocalServiceManager(broker)) as brokers:
            service = MessagingService(brokers, ENDPOINTS, clock)
            async with running(service):
                yield broker, service
