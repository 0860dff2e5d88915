"""Counts and times of requests, by request code and response code (RemotingMetricsManager, ``rpc_latency``).

``RequestMeter.figures`` is where metrics read them: plain numbers, written by the event loop alone.
"""

import logging
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from rocketbroker.codec.remoting.handler import Buffer, Route
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command
from rocketbroker.codec.remoting.request_code import RequestCode

log = logging.getLogger(__name__)

#: Upper bounds of the latency buckets, in seconds; one more bucket holds the rest. They are those of ``rpc_latency``,
#: and 5 s for the times of changes to topics and groups.
BUCKETS_S: Final = (0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0, 5.0)
#: Stands for all request codes without a route: a peer may invent any number of them.
UNKNOWN_CODE: Final = -1
# Seconds between two log lines about the same request code.
_LOG_EVERY_S = 10.0
# Header of a JSON response, which follows length and mark.
_SUCCESS = b'{"code":0,'
_CODE_START = 8 + len(b'{"code":')


#: Where the time of a request went, or a function that returns it for the time in seconds.
Cause = str | Callable[[float], str]


class RequestKey(NamedTuple):
    """Labels of a figure."""

    code: int
    response_code: int
    is_oneway: bool = False
    is_long_polling: bool = False


class Latency:
    """Number of requests, their total time and their distribution over ``BUCKETS_S``."""

    __slots__ = ("buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS_S) + 1)

    def add(self, seconds: float, count: int = 1) -> None:
        """Add requests that took the same time each."""
        self.count += count
        self.seconds += seconds * count
        self.buckets[bisect_left(BUCKETS_S, seconds)] += count


class RequestMeter:
    """Count and time every request of an endpoint where its response leaves, and log slow ones.

    A request's time begins with the read event that completed it and ends when its response is ready to be written.

    Args:
        codes: request codes with a route.
        slow_s: log requests that take longer; 0 logs none. Held pulls are never slow.
    """

    def __init__(self, codes: Collection[int], slow_s: float = 0.0) -> None:
        self.figures: dict[RequestKey, Latency] = {}
        # Those of requests answered at once with success, by route.
        self._successes: dict[Route, Latency] = {}
        self._codes = codes
        self._slow_s = slow_s or float("inf")
        self._slow: dict[int, _SlowLog] = {}

    def add(self, command: Command, response: Buffer, seconds: float, peer: str, cause: Cause) -> None:
        """Count one request.

        Args:
            command: the request.
            response: frame of its response; the body may be cut off.
            seconds: its time.
            peer: ``ip:port`` of the client.
            cause: where the time went, as the log says it; a function returns it for a time, for slow requests alone.
        """
        code = command.code
        is_suspended = command.is_suspended
        key = code, response_code_of(response), bool(command.flag & FLAG_ONEWAY), is_suspended
        latency = self.figures.get(key)  # type: ignore[call-overload] # a plain tuple finds its RequestKey, faster
        if latency is None:
            latency = self._latency(RequestKey(*key) if code in self._codes else RequestKey(UNKNOWN_CODE, *key[1:]))
        latency.add(seconds)
        if seconds > self._slow_s and not is_suspended:
            self._log_slow(code, seconds, peer, cause)

    def add_batch(self, routes: Sequence[Route], seconds: float, peer: str, cause: Cause = "") -> None:
        """Count successful requests that were answered together, which happens to most sends: once per read event.

        ``cause`` says where the time went; by default the event loop was busy with them.
        """
        first, count = routes[0], len(routes)
        if routes.count(first) == count:
            (self._successes.get(first) or self._success_of(first)).add(seconds, count)
        else:
            for route, its_count in Counter(routes).items():
                self._success_of(route).add(seconds, its_count)
        if seconds > self._slow_s:
            cause = (
                cause or f"the event loop handled it together with {len(routes) - 1} other requests of one read event"
            )
            self._log_slow(first.code, seconds, peer, cause)

    def _log_slow(self, code: int, seconds: float, peer: str, cause: Cause) -> None:
        code = code if code in self._codes else UNKNOWN_CODE
        if code not in self._slow:
            self._slow[code] = _SlowLog(code)
        self._slow[code].add(seconds, peer, cause if isinstance(cause, str) else cause(seconds))

    def _success_of(self, route: Route) -> Latency:
        latency = self._successes[route] = self._latency(RequestKey(route.code, 0))
        return latency

    def _latency(self, key: RequestKey) -> Latency:
        latency = self.figures.get(key)
        if latency is None:
            latency = self.figures[key] = Latency()
        return latency


class _SlowLog:
    """Log of slow requests of one code, at most one line in 10 s."""

    def __init__(self, code: int) -> None:
        names = {each.value: each.name for each in RequestCode}
        self._name = names.get(code, "request of an unknown code")
        self._omitted = 0
        self._logged_at = float("-inf")

    def add(self, seconds: float, peer: str, cause: Cause) -> None:
        """Log a slow request, or count it if the last line is younger than 10 s."""
        now = time.monotonic()
        if now < self._logged_at + _LOG_EVERY_S:
            self._omitted += 1
            return
        more = f"; {self._omitted} more since the last such line" if self._omitted else ""
        log.warning("slow request: %s of %s took %.2f s: %s%s", self._name, peer, seconds, cause, more)
        self._logged_at, self._omitted = now, 0


def response_code_of(frame: Buffer) -> int:
    """Return the response code of a frame with a JSON header; the body may be cut off."""
    frame = frame if isinstance(frame, bytes) else bytes(frame)
    if frame.startswith(_SUCCESS, 8):
        return 0
    return int(frame[_CODE_START : frame.index(b",", _CODE_START)])
