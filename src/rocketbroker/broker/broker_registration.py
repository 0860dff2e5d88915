"""What a broker tells name servers about itself (BrokerController.registerBrokerAll, BrokerOuterAPI)."""

import zlib
from collections.abc import Iterable

import msgspec

from rocketbroker.broker.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper
from rocketbroker.codec.remoting.headers.namesrv import (
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from rocketbroker.codec.remoting.perm_name import PERM_READ_WRITE
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig


class BrokerRegistration:
    """Makes the requests of a broker to name servers from its settings and topics of the moment.

    Args:
        config: who the broker is and where clients find it.
        store_config: where slaves find it.
        topic_configs: its topics.
    """

    def __init__(
        self, config: BrokerConfig, store_config: MessageStoreConfig, topic_configs: TopicConfigManager
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._topic_configs = topic_configs
        # The whole table takes long to encode and goes to several name servers each time.
        self._whole: tuple[object, bytes] = (None, b"")

    @property
    def broker_addr(self) -> str:
        """The address that clients are told."""
        return f"{self._config.broker_ip1}:{self._config.listen_port}"

    def whole(self) -> Command:
        """REGISTER_BROKER with all topics."""
        config, version = self._config, self._topic_configs.data_version
        key = (version.copy(), config.broker_permission, config.compressed_register)
        if self._whole[0] != key:
            self._whole = key, self._body(self._topic_configs.topics.values())
        return self._register(self._whole[1])

    def increment(self, topics: Iterable[TopicConfig]) -> Command:
        """REGISTER_BROKER with the topics that were created or changed."""
        return self._register(self._body(topics))

    def query_data_version(self) -> Command:
        """QUERY_DATA_VERSION: does the name server know the topics as they are?"""
        config = self._config
        header = QueryDataVersionRequestHeader(
            config.broker_name, self.broker_addr, config.broker_cluster_name, config.broker_id
        )
        return request(RequestCode.QUERY_DATA_VERSION, header, self._topic_configs.data_version.encode())

    def unregister(self) -> Command:
        """UNREGISTER_BROKER."""
        config = self._config
        header = UnRegisterBrokerRequestHeader(
            config.broker_name, self.broker_addr, config.broker_cluster_name, config.broker_id
        )
        return request(RequestCode.UNREGISTER_BROKER, header)

    def _register(self, body: bytes) -> Command:
        config = self._config
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.broker_addr,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=f"{config.broker_ip2}:{self._store_config.ha_listen_port}",
            broker_id=config.broker_id,
            enable_acting_master=False,
            compressed=config.compressed_register,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return request(RequestCode.REGISTER_BROKER, header, body)

    def _body(self, topics: Iterable[TopicConfig]) -> bytes:
        version = self._topic_configs.data_version.copy()
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table={topic.topic_name: self._permitted(topic) for topic in topics},
            data_version=version,
            mapping_data_version=DataVersion(timestamp=version.timestamp),
        )
        body = RegisterBrokerBody(wrapper)
        return body.encode_compressed() if self._config.compressed_register else body.encode()

    def _permitted(self, topic: TopicConfig) -> TopicConfig:
        """The topic with no more permissions than the broker has."""
        permission = self._config.broker_permission
        if permission == PERM_READ_WRITE:
            return topic
        return msgspec.structs.replace(topic, perm=topic.perm & permission)
