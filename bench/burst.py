"""One burst of requests, run once through each step of the send path and once through the whole path."""

from collections.abc import Callable
from time import thread_time
from typing import Any

from bench.send_path import SendPath, body_of, header_of, read_event, template_of
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.remoting.header_template import decode_plain
from rocketbroker.codec.remoting.hot_responses import frames, send_responses
from rocketbroker.store.commitlog.put_message import MessageRun, PutMessageResult
from rocketbroker.transport.connection import RemotingConnection

_Values = list[tuple[bytes, ...]]


class Burst:
    """Requests that go through the whole path once and through each step once.

    Args:
        path: the parts of the send path.
        reads: the frames of each read event, which are a run of their own.
    """

    def __init__(self, path: SendPath, reads: list[list[bytes]]) -> None:
        self._path = path
        self._reads = reads
        template = template_of(path.route, reads[0][0])
        self._command = template.command
        self._runs: list[tuple[_Values, list[ReadableBuffer]]] = [
            (
                [_values(template.fullmatch(header_of(frame))) for frame in frames_],
                [body_of(frame) for frame in frames_],
            )
            for frames_ in reads
        ]

    def timings(self) -> dict[str, float]:
        """Measure the CPU time of each step and of the whole path, in µs a message.

        Some steps include others: ``handler`` calls properties, append and answer; ``stored`` is append and dispatch.
        """
        count = sum(map(len, self._reads))
        runs, results = self._captured()
        timed = {
            "alone": _cpu_of(lambda: self._read(self._path.connection, alone=True)),
            "whole": _cpu_of(self._whole),
            "frames": _cpu_of(lambda: self._read(self._path.bare_connection)),
            "properties": _cpu_of(self._decode),
            "handler": _cpu_of(self._handle),
        }
        self._catch_up()
        timed["append"] = _cpu_of(lambda: self._append(runs))
        self._catch_up()
        timed["stored"] = _cpu_of(lambda: self._append_and_dispatch(runs))
        timed["index"] = _cpu_of(self._flush_index)
        timed["answer"] = _cpu_of(lambda: self._answer(runs, results))
        return {step: seconds / count * 1e6 for step, seconds in timed.items()}

    def _captured(self) -> tuple[list[MessageRun], list[PutMessageResult]]:
        """Return the messages that the handler would append, and where they are put."""
        runs: list[MessageRun] = []
        results: list[PutMessageResult] = []
        handler = self._path.runs
        put = handler._put

        def capture(run: MessageRun) -> Any:
            result = put(run)
            if result is not None:
                runs.append(run)
                results.append(result)
            return result

        handler._put = capture
        try:
            self._handle()
        finally:
            handler._put = put
        self._catch_up()
        return runs, results

    def _catch_up(self) -> None:
        self._path.store.appender.dispatch()
        self._flush_index()

    def _whole(self) -> None:
        self._read(self._path.connection)
        self._flush_index()

    def _read(self, connection: RemotingConnection, *, alone: bool = False) -> None:
        """Feed the requests to a connection, by one read event or each by its own."""
        for frames_ in self._reads:
            for event in frames_ if alone else [b"".join(frames_)]:
                read_event(connection, event)

    def _decode(self) -> None:
        for values, _ in self._runs:
            decode_plain([each[2] for each in values])

    def _handle(self) -> None:
        handle, connection = self._path.runs.process, self._path.connection
        for values, bodies in self._runs:
            handle(connection, self._command, values, bodies)

    def _append(self, runs: list[MessageRun]) -> None:
        for run in runs:
            self._path.store.appender.put_run(run)

    def _append_and_dispatch(self, runs: list[MessageRun]) -> None:
        """Append all messages and dispatch after each read event, as the network path does."""
        appender = self._path.store.appender
        for run in runs:
            appender.put_run(run)
            appender.dispatch()

    def _flush_index(self) -> None:
        index_service = self._path.store.index_service
        assert index_service is not None
        index_service.flush()

    def _answer(self, runs: list[MessageRun], results: list[PutMessageResult]) -> None:
        template = self._path.runs.own.run_template
        for (values, _), run, result in zip(self._runs, runs, results, strict=False):
            queue_ids, _, _, opaques = zip(*values, strict=True)
            keys = [found[1] for found in run.found]
            frames(send_responses(opaques, queue_ids, result.queue_offsets, result.physical_offsets, keys, template))


def _values(match: Any) -> tuple[bytes, ...]:
    assert match is not None, "the requests of a burst fit one template"
    found: tuple[bytes, ...] = match.groups()
    return found


def _cpu_of(work: Callable[[], None]) -> float:
    begun = thread_time()
    work()
    return thread_time() - begun
