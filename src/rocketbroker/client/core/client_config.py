"""Settings and signatures of the connections of a client (ClientConfig and AclClientRPCHook of RocketMQ)."""

import os
import ssl
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from rocketbroker.client.core.errors import ClientError
from rocketbroker.client.core.name_server_client import NameServerClient
from rocketbroker.client.core.options import CheckedStruct, Seconds
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRACE_TOPIC
from rocketbroker.codec.remoting.bound_signature import binder
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.transport.remoting_client import RemotingClient


class SessionCredentials(CheckedStruct, frozen=True):
    """Name and secret of a user of a cluster with access control.

    Args:
        access_key: name of the user.
        secret_key: secret of the user; it signs requests and is not sent.
        security_token: token of a temporary user.
    """

    access_key: str
    secret_key: str
    security_token: str = ""

    def __post_init__(self) -> None:
        """Refuse an empty key.

        Raises:
            ClientError: a key is empty.
        """
        super().__post_init__()
        if not self.access_key or not self.secret_key:
            raise ClientError("access_key or secret_key is empty; give both, as the cluster has them")

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"SessionCredentials({self.access_key!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Hide the secret from rich, too."""
        return [("access_key", self.access_key)]


class AclClientRPCHook(RequestSigner):
    """Signs requests by HmacSHA1, which brokers with ACL 1.0 or 2.0 check."""

    def __init__(self, credentials: SessionCredentials) -> None:
        super().__init__(credentials.access_key, credentials.secret_key, credentials.security_token)


_TLS = "True, or a context such as ssl.create_default_context(cafile=...)"


class ClientConfig(CheckedStruct, frozen=True):
    """Settings that producers, consumers and the admin client take in place of the name servers' addresses.

    Args:
        namesrv_addr: ``host:port`` of the name servers, joined by ``;``; or the URL of an address server, such as
            ``http://host:8080/rocketmq/nsaddr``; by default the environment variable NAMESRV_ADDR.
        credentials: user of a cluster with access control; requests are signed.
        bind_signatures: bind signatures to their connections, so that nobody who reads a request can send it again;
            a server that does not know this takes RocketMQ's signatures.
        tls: True for TLS with certificates checked against those of the system, or a context with other settings.
        namespace: prefix of the names of topics and groups; queues and raw records show it, messages do not.
        unit_name: name of the unit, a part of the client id and of the address server's URL.
        unit_mode: tell brokers that the client belongs to a unit.
        vip_channel_enabled: send messages to the second port of brokers, ``listenPort - 2``.
        instance_name: makes the client id ``address@instance`` unique; by default by process and a number.
        client_ip: address of this machine, detected by default.
        mq_client_api_timeout_s: limit for requests other than sends and pulls.
        poll_name_server_interval_s: seconds between refreshes of the routes.
        heartbeat_broker_interval_s: seconds between heartbeats, which continue while the event loop is blocked.
        loop_blocked_warning_s: seconds of a blocked event loop after which a warning names the blocking call; None
            switches this off, and heartbeats while the loop is blocked, too.
        enable_trace: send message traces of producers and consumers (enableMsgTrace).
        trace_topic: topic of the traces (customizedTraceTopic).

    Raises:
        OptionError: unknown setting, or a value that is not allowed.
    """

    namesrv_addr: str = ""
    credentials: SessionCredentials | None = None
    bind_signatures: bool = False
    tls: Annotated[ssl.SSLContext | bool, msgspec.Meta(description=_TLS)] = False
    namespace: str = ""
    unit_name: str = ""
    unit_mode: bool = False
    vip_channel_enabled: bool = False
    instance_name: str | None = None
    client_ip: str | None = None
    mq_client_api_timeout_s: Seconds = 3.0
    poll_name_server_interval_s: Seconds = 30.0
    heartbeat_broker_interval_s: Seconds = 30.0
    loop_blocked_warning_s: Seconds | None = 2.0
    enable_trace: bool = False
    trace_topic: str = RMQ_SYS_TRACE_TOPIC

    def remoting(
        self, routes: dict[int, Route] | None = None, on_close: Callable[[Connection, bool], None] | None = None
    ) -> RemotingClient:
        """Return the connections: TLS and signatures as set."""
        user, binds = self.credentials, self.bind_signatures
        context = ssl.create_default_context() if self.tls is True else self.tls or None
        return RemotingClient(
            routes,
            connect_timeout_s=min(self.mq_client_api_timeout_s, 3.0),
            on_close=on_close,
            before_request=AclClientRPCHook(user).sign if user else None,
            bind=binder(user.access_key, user.secret_key, user.security_token) if user and binds else None,
            tls=None if context is None else lambda: context,
        )

    def name_server(self, remoting: RemotingClient) -> NameServerClient:
        """Return a client of the name servers.

        Raises:
            ConfigError: no address, or an invalid one.
        """
        text = self.namesrv_addr or os.environ.get("NAMESRV_ADDR", "")
        return NameServerClient(remoting, text, self.mq_client_api_timeout_s, unit_name=self.unit_name)


def client_config(given: str | ClientConfig) -> ClientConfig:
    """Return settings; a text is the name servers' addresses."""
    return ClientConfig(given) if isinstance(given, str) else given
