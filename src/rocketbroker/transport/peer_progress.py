"""Progress of a peer: it finishes the frames that it begins and takes what is written to it."""

from rocketbroker.transport.connection_limits import ConnectionLimits

# A slow link has a second more for each so many bytes of a frame that came.
_SLOWEST_RATE = 64 * 1024


class PeerProgress:
    """Tells when a peer is late with a frame or with taking its answers.

    What waits for a peer holds memory, and files of the log that were deleted since.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.frame_began_at = 0.0
        # Bytes that waited for the peer at the last look, and when it last took some.
        self._untaken = 0
        self.taken_at = 0.0

    def lateness(self, now: float, untaken: int, received: int) -> str:
        """The reason to drop the peer, or an empty text.

        Args:
            now: by the clock of the event loop.
            untaken: bytes that wait for the peer.
            received: bytes of the incomplete frame.
        """
        if not untaken or untaken < self._untaken:
            self.taken_at = now
        self._untaken = untaken
        limits = self._limits
        if now - self.taken_at > limits.max_idle_s:
            return (
                f"it took none of the {untaken} bytes that wait for it within {limits.max_idle_s:g} s "
                "(serverChannelMaxIdleTimeSeconds)"
            )
        late_s = now - self.frame_began_at
        if received and late_s > limits.frame_timeout_s + received / _SLOWEST_RATE:
            return (
                f"its frame began {late_s:.0f} s ago and is not whole, of which {received:,} bytes came; the limit is "
                f"{limits.frame_timeout_s:g} s and a second for each 64 KiB (frameTimeoutSeconds)"
            )
        return ""
