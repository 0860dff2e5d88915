"""Protected mode: which requests a peer may send, decided by its address."""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketbroker.codec.remoting.handler import Audience, Connection, Guard, Route
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.hosts import contains, parse_address, parse_networks
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.event_log import RefusalLog

if TYPE_CHECKING:  # clients need no settings, and pydantic takes as long to load as they do
    from rocketbroker.common.config.transport_config import TransportConfig

log = logging.getLogger(__name__)

#: Bytes of ``{"code":310,`` and ``{"code":200050,``, which name the route of a code of at most three or of six digits.
SHORT_PREFIX: Final = 12
LONG_PREFIX: Final = 15
_FOUR_DIGITS: Final = 1000
_SIX_DIGITS: Final = range(100_000, 1_000_000)
_WHITE_LISTS = {Audience.BROKER: "brokerWhiteList", Audience.ADMINISTRATION: "adminWhiteList"}

# (peer host, own host) -> audience that the peer belongs to.
Admit = Callable[[str, str], Audience]
# (connection, request code, reason) of a refused request.
OnRefused = Callable[[Connection, int, str], None]


def admit_all(_peer: str, _own: str) -> Audience:
    """Let every peer send every request, as RocketMQ does."""
    return Audience.ADMINISTRATION


class ProtectedMode:
    """Choose the audience of a peer by its address; hot changes of the settings apply to the next call.

    Processes on this machine may send everything. Their peer address is a loopback address, or the address to which
    they connected, which a command finds in a route.
    """

    def __init__(self, config: "TransportConfig") -> None:
        self._config = config

    def __call__(self, peer: str, own: str) -> Audience:
        """Return the audience of a peer; an unknown address is a client."""
        config = self._config
        if not config.protected_mode:
            return Audience.ADMINISTRATION
        return _audience(peer, own, config.admin_white_list, config.broker_white_list)

    def trusts(self, peer: str, own: str) -> bool:
        """Return true for this machine and the addresses of the white lists, also without protected mode."""
        config = self._config
        return _audience(peer, own, config.admin_white_list, config.broker_white_list) is not Audience.CLIENT


# A hot change checks all connections at once, and most come from a few hosts.
@lru_cache(maxsize=1024)
def _audience(peer: str, own: str, admin_white_list: str, broker_white_list: str) -> Audience:
    address = parse_address(peer)
    if address is None:
        return Audience.CLIENT
    if is_this_machine(peer, own) or contains(parse_networks(admin_white_list), address):
        return Audience.ADMINISTRATION
    return Audience.BROKER if contains(parse_networks(broker_white_list), address) else Audience.CLIENT


def is_this_machine(peer: str, own: str) -> bool:
    """Return true if a peer that connected to an own address has that address too, or a loopback address."""
    address = parse_address(peer)
    return address is not None and (address.is_loopback or address == parse_address(own))


class RouteTable(NamedTuple):
    """Routes of one audience by request code, and by the first bytes of a JSON header."""

    by_code: dict[int, Route]
    by_prefix: dict[bytes, Route]


def route_tables(routes: dict[int, Route], on_refused: OnRefused | None = None) -> dict[Audience, RouteTable]:
    """Return the route table of each audience; a guard rejects the codes beyond the audience.

    A connection gets its table when it is accepted, so that no message pays for the check.
    """
    return {audience: _table(routes, audience, on_refused) for audience in Audience}


def _table(routes: dict[int, Route], audience: Audience, on_refused: OnRefused | None) -> RouteTable:
    refusals = RefusalLog(log)
    by_code = {
        code: route if route.audience <= audience else route.guarded(_refusal(route, audience, refusals, on_refused))
        for code, route in routes.items()
    }
    # A lookup by the first bytes saves a pass over the header.
    starts = {code: b'{"code":%d,"' % code for code in by_code}
    short = {starts[code][:SHORT_PREFIX]: route for code, route in by_code.items() if code < _FOUR_DIGITS}
    long = {starts[code][:LONG_PREFIX]: route for code, route in by_code.items() if code in _SIX_DIGITS}
    return RouteTable(by_code, short | long)


def _refusal(route: Route, admitted: Audience, refusals: RefusalLog, on_refused: OnRefused | None) -> Guard:
    """Return a guard that rejects every request of a route."""
    try:
        name = f"{route.code} ({RequestCode(route.code).name})"
    except ValueError:
        name = str(route.code)
    white_list = _WHITE_LISTS[route.audience]
    # Without the port: what comes again is counted, not written.
    reason = f"protectedMode: for {route.audience.word}, the peer is admitted as {admitted.word}"

    def refuse(connection: Connection, _command: Command) -> None:
        text = (
            f"protectedMode: request code {name} is for {route.audience.word}, and {connection.remote_address} is "
            f"admitted as {admitted.word}; add its address to {white_list}, or set protectedMode=false"
        )
        refusals.add(text)
        if on_refused is not None:
            on_refused(connection, route.code, reason)
        raise BrokerResponseError(ResponseCode.NO_PERMISSION, text)

    return refuse
