from collections.abc import Sequence

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Connection, Route, RunHandler
from rocketbroker.codec.remoting.header_template import INT, VaryingField
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.hot_responses import success_response
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing.faults import Faults
from tests.support.transports import connect, feed

CODE = 31


class Runs(RunHandler):
    """Handler that answers requests alone and together."""

    fields = (VaryingField("queue_id", INT),)
    fewest = 6

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def accepts(self, command: Command) -> bool:
        return True

    def process(
        self, connection: Connection, command: Command, columns: Sequence[Sequence[bytes]], bodies: object
    ) -> bytes:
        self.sizes.append(len(columns[-1]))
        return b"".join(success_response(int(opaque)) for opaque in columns[-1])


def frames(first: int, count: int) -> bytes:
    made = []
    for number in range(first, first + count):
        command = request(CODE, GetMinOffsetRequestHeader("T", number))
        command.opaque = number
        made.append(encode_frame(command))
    return b"".join(made)


async def test_requests_are_handled_together_while_no_fault_is_ordered():
    faults, runs = Faults(), Runs()
    route = Route(CODE, lambda _, command: success_response(command.opaque), GetMinOffsetRequestHeader, runs=runs)
    connection, transport, _ = connect({CODE: faults.interpose("broker-a", route)})
    feed(connection, frames(1, 9))

    feed(connection, frames(10, 10))
    assert runs.sizes == [10]

    faults.answer(ResponseCode.SYSTEM_BUSY, to={CODE}, times=3)
    feed(connection, frames(20, 10))
    assert runs.sizes == [10]
    feed(connection, frames(30, 10))

    assert runs.sizes == [10, 10]
    assert [answer.opaque for answer in transport.answers] == list(range(1, 40))
    assert [answer.opaque for answer in transport.answers if answer.code == ResponseCode.SYSTEM_BUSY] == [20, 21, 22]
