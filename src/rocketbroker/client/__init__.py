"""The client of RocketMQ brokers: producer, pull consumer, admin client.

The names below load what they need on first use: ``from rocketbroker.client import Message, Producer``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketbroker.client.admin_client import AdminClient as AdminClient
    from rocketbroker.client.client_instance import ClientInstance as ClientInstance
    from rocketbroker.client.message import Message as Message
    from rocketbroker.client.message_selector import MessageSelector as MessageSelector
    from rocketbroker.client.producer import Producer as Producer
    from rocketbroker.client.pull_consumer import PullConsumer as PullConsumer
    from rocketbroker.client.pull_consumer import StartFrom as StartFrom
    from rocketbroker.client.pull_result import PullResult as PullResult
    from rocketbroker.client.pull_result import PullStatus as PullStatus
    from rocketbroker.client.send_result import SendResult as SendResult
    from rocketbroker.client.send_result import SendStatus as SendStatus

_HOMES = {
    "AdminClient": "admin_client",
    "ClientInstance": "client_instance",
    "Message": "message",
    "MessageSelector": "message_selector",
    "Producer": "producer",
    "PullConsumer": "pull_consumer",
    "PullResult": "pull_result",
    "PullStatus": "pull_result",
    "SendResult": "send_result",
    "SendStatus": "send_result",
    "StartFrom": "pull_consumer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
