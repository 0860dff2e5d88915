"""Heartbeats to brokers (MQClientInstance.sendHeartbeatToAllBroker and unregisterClient)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from rocketbroker.client.failure_log import FailureLog
from rocketbroker.client.requests import check_success, client_request
from rocketbroker.codec.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData
from rocketbroker.codec.remoting.headers.admin import UnregisterClientRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingTimeoutError, RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.remoting_client import RemotingClient

log = logging.getLogger(__name__)


class HeartbeatSender:
    """Send heartbeats of all groups of a client: to a broker on first use, then regularly.

    Args:
        remoting: connections to brokers.
        client_id: the id of the client, unique among all clients.
        broker_addresses: returns the addresses to send to; called with ``masters_only``.
        interval_s: seconds between heartbeats (heartbeatBrokerInterval).
        timeout_s: limit for a broker's answer.
    """

    def __init__(
        self,
        remoting: RemotingClient,
        client_id: str,
        broker_addresses: Callable[[bool], set[str]],
        *,
        interval_s: float = 30.0,
        timeout_s: float = 3.0,
    ) -> None:
        self._remoting = remoting
        self.client_id = client_id
        self._broker_addresses = broker_addresses
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._producers: set[str] = set()
        self._consumers: dict[str, ConsumerData] = {}
        # Brokers that a heartbeat was ever sent to. Those without a connection have forgotten the client.
        self._known: set[str] = set()
        # Brokers whose last heartbeat had the current groups.
        self._greeted: set[str] = set()
        # The last heartbeat to each broker, done when it has ended.
        self._heartbeats: dict[str, asyncio.Future[None]] = {}
        # Ordinals of MQVersion in the answers of connected brokers to heartbeats.
        self._versions: dict[str, int] = {}
        self._failures = FailureLog(log)
        self._tasks = TaskOwner("heartbeat-sender")

    async def start(self) -> None:
        """Start the regular heartbeats."""
        self._tasks.every(self._interval_s, self.send_to_all, "send")

    async def stop(self) -> None:
        """Stop the heartbeats."""
        await self._tasks.stop()

    def register_producer(self, group: str) -> None:
        """Add a producer group to the heartbeats."""
        self._producers.add(group)
        self._greeted.clear()

    def register_consumer(self, data: ConsumerData) -> None:
        """Add a consumer group and its subscriptions to the heartbeats, or replace them."""
        self._consumers[data.group_name] = data
        self._greeted.clear()

    async def unregister_producer(self, group: str) -> None:
        """Unregister a producer group at all brokers that may know it."""
        self._producers.discard(group)
        await self._unregister(UnregisterClientRequestHeader(self.client_id, producer_group=group))

    async def unregister_consumer(self, group: str) -> None:
        """Unregister a consumer group at all brokers that may know it."""
        self._consumers.pop(group, None)
        await self._unregister(UnregisterClientRequestHeader(self.client_id, consumer_group=group))

    async def greet(self, address: str, timeout_s: float | None = None) -> None:
        """Send a heartbeat to a broker unless it knows the current groups; log a failure.

        After ``timeout_s`` the heartbeat goes on behind this.
        """
        if address not in self._greeted:
            await asyncio.wait([self._tasks.start(self._send(address), "greet")], timeout=timeout_s)

    async def broker_version(self, address: str, timeout_s: float) -> int | None:
        """Wait for the heartbeat under way; return the ordinal of a broker's version in MQVersion, None if unknown.

        Raises:
            RemotingTimeoutError: The heartbeat was not answered in time.
        """
        heartbeat = self._heartbeats.get(address)
        if address not in self._versions and heartbeat is not None:
            done, _ = await asyncio.wait([heartbeat], timeout=timeout_s)
            if not done:
                raise RemotingTimeoutError(f"no answer from {address} to a heartbeat within {timeout_s:g} s")
        return self._versions.get(address)

    def greet_soon(self, address: str) -> None:
        """Send a heartbeat like ``greet``, in a task."""
        if address not in self._greeted:
            self._tasks.start(self._send(address), "greet")

    def connection_lost(self) -> None:
        """Greet brokers without a connection again on next use: brokers forget a client with its connection."""
        self._greeted = set(filter(self._remoting.is_connected, self._greeted))
        # A broker may have another version after a restart.
        self._versions = {each: self._versions[each] for each in filter(self._remoting.is_connected, self._versions)}

    async def send_to_all(self) -> None:
        """Send a heartbeat to all brokers of known routes; without consumers, to masters only."""
        if not self._producers and not self._consumers:
            return
        await asyncio.gather(*map(self._send, self._broker_addresses(not self._consumers)))

    def send_from_thread(self) -> int:
        """Send a heartbeat to all brokers that know the client, from another thread while the event loop is blocked.

        Return the number of brokers that it went to.
        """
        return sum(self._remoting.send_from_thread(address, self._request()) for address in tuple(self._known))

    def _request(self) -> Command:
        producers = [ProducerData(group) for group in sorted(self._producers)]
        body = HeartbeatData(self.client_id, producers, list(self._consumers.values())).encode()
        return client_request(RequestCode.HEART_BEAT, body=body)

    def _send(self, address: str) -> Coroutine[None, None, None]:
        """Note that a broker is greeted from now on; return the sending of the heartbeat."""
        self._known.add(address)
        self._greeted.add(address)
        heartbeat = self._heartbeats[address] = asyncio.get_running_loop().create_future()
        return self._send_noted(address, heartbeat)

    async def _send_noted(self, address: str, heartbeat: asyncio.Future[None]) -> None:
        try:
            answer = await self._remoting.invoke(address, self._request(), self._timeout_s)
            self._versions[address] = answer.version  # that of a refusal as well
            check_success(answer)
        except RocketBrokerError as error:
            self._greeted.discard(address)
            self._failures.warning("heartbeat to %s failed: %s", address, error)
        finally:
            heartbeat.set_result(None)

    async def _unregister(self, header: UnregisterClientRequestHeader) -> None:
        addresses = self._greeted.union(filter(self._remoting.is_connected, self._known))
        await asyncio.gather(*(self._unregister_at(address, header) for address in addresses))

    async def _unregister_at(self, address: str, header: UnregisterClientRequestHeader) -> None:
        try:
            command = client_request(RequestCode.UNREGISTER_CLIENT, header)
            check_success(await self._remoting.invoke(address, command, self._timeout_s))
        except RocketBrokerError as error:
            log.warning("unregistering at %s failed: %s", address, error)
