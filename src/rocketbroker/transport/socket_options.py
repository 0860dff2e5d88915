"""Options of connected sockets."""

import socket


def set_options(sock: socket.socket | None, send_buffer: int) -> None:
    """Disable Nagle's algorithm and set the send buffer, if not 0; for TCP sockets only."""
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
