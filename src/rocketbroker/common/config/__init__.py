"""Typed settings: one model each for broker, store, name server and transport, with RocketMQ's names and defaults.

`load` reads files, `hot_change` applies changes at run time, `printing` implements `-p` and `-m`.
"""

from rocketbroker.common.config.broker_config import BrokerConfig
from rocketbroker.common.config.message_store_config import MessageStoreConfig
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.transport_config import TransportConfig

__all__ = ["BrokerConfig", "MessageStoreConfig", "NamesrvConfig", "TransportConfig"]
