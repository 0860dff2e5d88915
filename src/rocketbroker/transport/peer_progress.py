"""Progress of a peer in sending its frames and taking its answers."""

from rocketbroker.transport.connection_limits import ConnectionLimits

# Bytes of a frame that extend its timeout by one second, for slow links.
_SLOWEST_RATE = 64 * 1024


class PeerProgress:
    """Detect a peer that is late with a frame or with taking its answers.

    Unsent answers hold memory, and disk blocks of deleted log files.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.frame_began_at = 0.0
        # Unsent bytes at the last check, and the time when the peer last took some.
        self._unsent = 0
        self.taken_at = 0.0

    def lateness(self, now: float, unsent: int, received: int) -> str:
        """Return the reason to drop the peer, or an empty text.

        Args:
            now: time of the event loop.
            unsent: bytes written for the peer that it has not taken.
            received: bytes received of the incomplete frame.
        """
        if not unsent or unsent < self._unsent:
            self.taken_at = now
        self._unsent = unsent
        limits = self._limits
        if now - self.taken_at > limits.max_idle_s:
            return (
                f"it took none of the {unsent} bytes that wait for it within {limits.max_idle_s:g} s "
                "(serverChannelMaxIdleTimeSeconds)"
            )
        late_s = now - self.frame_began_at
        if received and late_s > limits.frame_timeout_s + received / _SLOWEST_RATE:
            return (
                f"its frame began {late_s:.0f} s ago and is incomplete at {received:,} bytes; the limit is "
                f"{limits.frame_timeout_s:g} s plus 1 s per 64 KiB (frameTimeoutSeconds)"
            )
        return ""
