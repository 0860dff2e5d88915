"""One burst of requests, run once through each step of the send path and once through the whole path."""

from collections.abc import Callable
from time import thread_time
from typing import Any

from bench.send_path import SendPath, body_of, header_of
from rocketbroker.codec.remoting.hot_responses import region_suffix, send_response
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from rocketbroker.transport.connection import RemotingConnection


class Burst:
    """Requests that go through the whole path once and through each step once.

    Args:
        path: the parts of the send path.
        reads: the frames of each read event.
    """

    def __init__(self, path: SendPath, reads: list[list[bytes]]) -> None:
        self._path = path
        self._reads = reads
        self._frames = [frame for frames in reads for frame in frames]
        self._headers = [header_of(frame) for frame in self._frames]

    def timings(self) -> dict[str, float]:
        """Measure the CPU time of each step and of the whole path, in µs a message.

        Some steps include others: ``processor`` calls route, append and answer; ``stored`` is append and dispatch.
        """
        count = len(self._frames)
        commands = self._decoded()
        messages = self._captured(commands)
        timed = {
            "whole": _cpu_of(self._whole),
            "transport": _cpu_of(lambda: self._read(self._path.bare_connection)),
            "decode": _cpu_of(self._decode),
            "route": _cpu_of(lambda: self._route(commands)),
            "processor": _cpu_of(lambda: self._process(commands)),
        }
        self._catch_up()
        timed["append"] = _cpu_of(lambda: self._append(messages))
        self._catch_up()
        timed["stored"] = _cpu_of(lambda: self._append_and_dispatch(messages))
        timed["index"] = _cpu_of(self._flush_index)
        timed["answer"] = _cpu_of(lambda: self._answer(commands))
        return {step: seconds / count * 1e6 for step, seconds in timed.items()}

    def _decoded(self) -> list[Command]:
        commands = []
        for header, frame in zip(self._headers, self._frames, strict=True):
            command = self._path.route.decode_json(header)
            command.body = body_of(frame)
            commands.append(command)
        return commands

    def _captured(self, commands: list[Command]) -> list[MessageExtBrokerInner]:
        """Return the messages that the processor would append for the requests."""
        messages: list[MessageExtBrokerInner] = []
        store = self._path.store
        put = store.appender.put_message

        def capture(message: MessageExtBrokerInner) -> Any:
            messages.append(message)
            return put(message)

        store.appender.put_message = capture  # type: ignore[method-assign]
        try:
            self._process(commands)
        finally:
            store.appender.put_message = put  # type: ignore[method-assign]
        self._catch_up()
        return messages

    def _catch_up(self) -> None:
        self._path.store.appender.dispatch()
        self._flush_index()

    def _whole(self) -> None:
        self._read(self._path.connection)
        self._flush_index()

    def _read(self, connection: RemotingConnection) -> None:
        for frames in self._reads:
            data = memoryview(b"".join(frames))
            while data:
                room = connection.get_buffer(-1)
                part, data = data[: len(room)], data[len(room) :]
                room[: len(part)] = part  # the copy that recv would make
                connection.buffer_updated(len(part))

    def _decode(self) -> None:
        decode = self._path.route.decode_json
        for header in self._headers:
            decode(header)

    def _route(self, commands: list[Command]) -> None:
        find, address = self._path.targets.find, self._path.connection.remote_address
        for command in commands:
            find(command.header, address)

    def _process(self, commands: list[Command]) -> None:
        process, connection = self._path.route.process, self._path.connection
        for command in commands:
            process(connection, command)

    def _append(self, messages: list[MessageExtBrokerInner]) -> None:
        put = self._path.store.appender.put_message
        for message in messages:
            put(message)

    def _append_and_dispatch(self, messages: list[MessageExtBrokerInner]) -> None:
        """Append all messages and dispatch after each read event, as the network path does."""
        put, dispatch = self._path.store.appender.put_message, self._path.store.appender.dispatch
        first = 0
        for frames in self._reads:
            after = first + len(frames)
            for message in messages[first:after]:
                put(message)
            dispatch()
            first = after

    def _flush_index(self) -> None:
        index_service = self._path.store.index_service
        assert index_service is not None
        index_service.flush()

    def _answer(self, commands: list[Command]) -> None:
        suffix = region_suffix("DefaultRegion", trace_on=True)
        for command in commands:
            send_response(command.opaque, 3, 1_000_000, b"7F00000100002A9F%016X" % 1_000_000, b"7F" * 16, suffix)


def _cpu_of(work: Callable[[], None]) -> float:
    begun = thread_time()
    work()
    return thread_time() - begun
