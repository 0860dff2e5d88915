"""Brokers for tests: ``RocketMQServer``, the pytest plugin, and launchers that no command of the product offers.

The names below load what they need on first use: ``from rocketbroker.testing import RocketMQServer``.
"""

from typing import TYPE_CHECKING

from rocketbroker.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from rocketbroker.testing.clocks import ClockError as ClockError
    from rocketbroker.testing.clocks import MovableClock as MovableClock
    from rocketbroker.testing.faults import PULLS as PULLS
    from rocketbroker.testing.faults import SENDS as SENDS
    from rocketbroker.testing.faults import Faults as Faults
    from rocketbroker.testing.rocketmq_server import RocketMQServer as RocketMQServer
    from rocketbroker.testing.rocketmq_server import ServerStateError as ServerStateError

_HOMES = {
    "PULLS": ".faults",
    "SENDS": ".faults",
    "ClockError": ".clocks",
    "Faults": ".faults",
    "MovableClock": ".clocks",
    "RocketMQServer": ".rocketmq_server",
    "ServerStateError": ".rocketmq_server",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
