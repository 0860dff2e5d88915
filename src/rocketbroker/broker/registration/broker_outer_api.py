"""Registration of the broker at all its name servers (org.apache.rocketmq.broker.out.BrokerOuterAPI)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from rocketbroker.broker.registration.broker_registration import BrokerRegistration
from rocketbroker.broker.registration.namesrv_link import (
    MasterAddress,
    NameLookup,
    NamesrvLink,
    Registered,
    TopAddressing,
)
from rocketbroker.broker.registration.topic_route_info_manager import TopicRouteInfoManager
from rocketbroker.broker.topic.topic_config_manager import TopicChange, TopicConfigManager
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.address_server_client import require_http
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.tls_transport import RemotingTls

log = logging.getLogger(__name__)

START_TIMEOUT_S = 3.0


class BrokerOuterApi:
    """Registers at every name server: at start, every 30 s, and after each change of a topic.

    Args:
        config: addresses of the name servers, and the registration period.
        client: sends the requests; its owner stops it after this part.
        topic_configs: reports changed topics, and records ordered ones.
        master: gets the master that the name servers name to a slave.
    """

    def __init__(
        self,
        config: BrokerConfig,
        client: RemotingClient,
        topic_configs: TopicConfigManager,
        registration: BrokerRegistration,
        master: MasterAddress,
    ) -> None:
        self._config = config
        self._client = client
        self._topic_configs = topic_configs
        self._registration = registration
        self._master = master
        self._top_addressing = TopAddressing(config, client.tls)
        self._name_lookup = NameLookup(config)
        self._tasks = TaskOwner("BrokerOuterApi")
        self._links: dict[str, NamesrvLink] = {}
        topic_configs.on_change(self.register_change)

    def name_servers(self) -> list[str]:
        """Return the addresses of the name servers."""
        return list(self._links)

    async def find_name_servers(self) -> list[str]:
        """Return the name servers that the settings name; for a part that starts before this one."""
        if self._config.fetch_name_srv_addr_by_dns_lookup:
            return await self._name_lookup.addresses()
        if self._config.namesrv_addr:
            return [address.strip() for address in self._config.namesrv_addr.split(";") if address.strip()]
        if self._config.fetch_namesrv_addr_by_address_server:
            return await self._top_addressing.fetch() or []
        return []

    def registered_at(self) -> list[str]:
        """Return the addresses of the name servers where the broker is registered."""
        return [address for address, link in self._links.items() if link.is_registered]

    async def start(self) -> None:
        """Register everywhere; return once every name server has answered or failed (logged), or after 3 s."""
        config = self._config
        if config.namesrv_addr and config.fetch_name_srv_addr_by_dns_lookup:
            self._tasks.forever(partial(self._poll, self._name_lookup.addresses), "name lookup")
        elif config.namesrv_addr:
            await self.update_name_servers(config.namesrv_addr.split(";"))
        elif config.fetch_namesrv_addr_by_address_server:
            require_http("fetchNamesrvAddrByAddressServer=true")
            self._tasks.forever(partial(self._poll, self._top_addressing.fetch), "address server")
        else:
            log.warning("namesrvAddr is empty: clients cannot find this broker; set it to the name servers' addresses")
        await asyncio.wait([self._tasks.start(self.settled(), "first registration")], timeout=START_TIMEOUT_S)
        self._tasks.forever(self._register_periodically, "register")

    async def stop(self) -> None:
        """Unregister everywhere."""
        await self._tasks.stop()
        links, self._links = self._links, {}
        await asyncio.gather(*(link.stop(unregister=True) for link in links.values()))

    def register_all(self) -> list[asyncio.Future[None]]:
        """Register all topics at every name server soon; each future is done once that has succeeded or failed."""
        return [link.register_whole() for link in self._links.values()]

    def register_change(self, change: TopicChange) -> list[asyncio.Future[None]]:
        """Register changed topics at every name server soon; each future is done once that has succeeded or failed."""
        return [link.register_change(change) for link in self._links.values()]

    async def settled(self) -> None:
        """Wait until all scheduled registrations have succeeded or failed."""
        await asyncio.gather(*(link.settled() for link in self._links.values()))

    async def update_name_servers(self, addresses: list[str]) -> None:
        """Use these name servers from now on: register at new ones, and leave others without unregistering."""
        wanted = dict.fromkeys(address.strip() for address in addresses if address.strip())
        for address in self._links.keys() - wanted:
            log.info("name server %s is no longer used", address)
            await self._links.pop(address).stop(unregister=False)
            self._master.lost(address)
        for address in (address for address in wanted if address not in self._links):
            link = NamesrvLink(address, self._client, self._config, self._registration, self._answered)
            self._links[address] = link
            link.start()
            link.register_whole()

    def _answered(self, name_server: str, answer: Registered | None) -> None:
        if answer is None:
            self._master.lost(name_server)
            return
        self._master.registered(name_server, answer.master)
        self._topic_configs.set_order_topics(answer.order_topics)

    async def _register_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._config.register_name_server_period / 1000)
            self.register_all()

    async def _poll(self, fetch: Callable[[], Awaitable[list[str] | None]]) -> None:
        while True:
            addresses = await fetch()
            if addresses:
                await self.update_name_servers(addresses)
            known = self._config.update_name_server_addr_period
            unknown = self._config.fetch_namesrv_addr_interval
            await asyncio.sleep((known if self._links else unknown) / 1000)


class OuterNetwork:
    """Everything by which a broker reaches name servers and other brokers.

    Args:
        tls: TLS of connections in both directions.
        before_request: called with each request before it is sent, to sign it.
        bind: returns what is called instead on a connection whose server gave it this nonce.

    Attributes:
        client: sends the requests; the owner of the network stops it.
        registration: makes the requests to name servers.
        master_address: the master that the name servers name to a slave.
        outer_api: registers the broker.
        routes: finds the queues of topics on all brokers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        topic_configs: TopicConfigManager,
        tls: RemotingTls,
        before_request: Callable[[Command], None] | None = None,
        bind: Callable[[str], Callable[[Command], None]] | None = None,
    ) -> None:
        self.tls = tls
        self.client = RemotingClient(tls=tls.outgoing, before_request=before_request, bind=bind)
        self.registration = BrokerRegistration(config, store_config, topic_configs)
        self.master_address = MasterAddress(lambda: self.registration.broker_addr)
        self.outer_api = BrokerOuterApi(config, self.client, topic_configs, self.registration, self.master_address)
        self.routes = TopicRouteInfoManager(config, self.client, self.outer_api.name_servers)
