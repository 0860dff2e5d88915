"""A broker that does a part of each send: ``python -m bench.bounded_broker answers|stores -c FILE``.

``answers`` matches headers and answers, and stores nothing. ``stores`` finds the end of each frame and its opaque, and
stores its body with the properties of one request. Only sends that come together are shortened. Never for real use.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rocketbroker.app import broker_startup
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.header_template import HeaderTemplate, decode_plain, make_template
from rocketbroker.codec.remoting.hot_responses import frames, send_responses
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.processor.support.send_runs import SendRuns
from rocketbroker.store.commitlog.put_message import MessageRun
from rocketbroker.transport import frame_reader

_SEND = b'{"code":310,'
# The opaque is one of the last fields.
_TAIL = 96
_find_opaque = re.compile(rb'"opaque":([0-9]+)').search


class _OpaqueAlone:
    """Template that any send fits and whose only value is the opaque."""

    def __init__(self, template: HeaderTemplate) -> None:
        self.command = template.command

    @staticmethod
    def fullmatch(data: memoryview, start: int, end: int) -> Any:
        """Match the opaque of a send."""
        return _find_opaque(data, max(start, end - _TAIL), end) if data[start : start + len(_SEND)] == _SEND else None


def _answer(runs: SendRuns, connection: Connection, command: Command, values: Any, _bodies: Any) -> bytes | None:
    """Answer sends without storing them."""
    if runs.target(connection, command.header) is None:
        return None
    queue_ids, _, _, opaques = zip(*values, strict=True)
    return _answers(runs, opaques, queue_ids, [0] * len(values), [0] * len(values))


def _store(runs: SendRuns, connection: Connection, command: Command, values: Any, bodies: Any) -> bytes | None:
    """Store sends that are all taken to be like one."""
    header, count = command.header, len(values)
    plain = decode_plain([json.dumps(header.properties)[1:-1].encode()])
    target = runs.target(connection, header)
    if target is None or plain is None:
        return None
    properties, found = plain
    queue_ids = [number % target.queue_nums for number in range(count)]
    result = runs._put(
        MessageRun(
            header.topic,
            queue_ids,
            bodies,
            [properties[0] + runs.own.encoded] * count,
            [header.born_timestamp] * count,
            found * count,
            header.flag,
            header.sys_flag,
            connection.remote_host,
            0,
        )
    )
    if result is None:
        return None
    texts = [b"%d" % queue_id for queue_id in queue_ids]
    opaques = [each[0] for each in values]
    return _answers(runs, opaques, texts, result.queue_offsets, result.physical_offsets)


def _answers(
    runs: SendRuns,
    opaques: Sequence[bytes],
    queue_ids: Sequence[bytes],
    queue_offsets: Sequence[int],
    physical_offsets: Sequence[int],
) -> bytes:
    keys = [b"0" * 32] * len(opaques)
    return frames(send_responses(opaques, queue_ids, queue_offsets, physical_offsets, keys, runs.own.run_template))


def shorten(bound: str, replace: Callable[[object, str, object], None] = setattr) -> None:
    """Replace the parts of the send path that a bound leaves out."""
    if bound == "answers":
        replace(SendRuns, "process", _answer)
        return

    def make(*arguments: Any) -> _OpaqueAlone | None:
        template = make_template(*arguments)
        return None if template is None else _OpaqueAlone(template)

    replace(frame_reader, "make_template", make)
    replace(SendRuns, "process", _store)


if __name__ == "__main__":
    shorten(sys.argv.pop(1))
    broker_startup.main()
