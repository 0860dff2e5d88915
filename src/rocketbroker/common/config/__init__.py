"""Typed settings: one model each for broker, store, name server and transport, in RocketMQ's names and defaults.

Reading files and resolving them is in `load`, hot changes in `hot_change`, `-p` and `-m` in `printing`.
"""

from rocketbroker.common.config.broker_config import BrokerConfig
from rocketbroker.common.config.message_store_config import MessageStoreConfig
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.transport_config import TransportConfig

__all__ = ["BrokerConfig", "MessageStoreConfig", "NamesrvConfig", "TransportConfig"]
