"""Typed settings: one model each for broker, store, name server and transport, with RocketMQ's names and defaults.

`load` reads files, `current_settings` applies changes at run time and implements `-p` and `-m`. The models load on
first use: clients need the addresses in `hosts` alone.
"""

from typing import TYPE_CHECKING

from rocketbroker.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from rocketbroker.common.config.broker_config import BrokerConfig as BrokerConfig
    from rocketbroker.common.config.message_store_config import MessageStoreConfig as MessageStoreConfig
    from rocketbroker.common.config.namesrv_config import NamesrvConfig as NamesrvConfig
    from rocketbroker.common.config.transport_config import TransportConfig as TransportConfig

_HOMES = {
    "BrokerConfig": ".broker_config",
    "MessageStoreConfig": ".message_store_config",
    "NamesrvConfig": ".namesrv_config",
    "TransportConfig": ".transport_config",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
