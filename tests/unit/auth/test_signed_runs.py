"""Routes whose requests may be checked by templates."""

from collections.abc import Callable

import pytest

from rocketbroker.auth.signed_runs import SignedRuns
from rocketbroker.codec.remoting.handler import Route, RunHandler
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.request_code import RequestCode


class Runs(RunHandler):
    """Handler of runs, which gets none here."""

    fields = ()
    fewest = 7

    def accepts(self, command: object) -> bool:
        raise AssertionError("not called here")

    def process(self, *_: object) -> None:
        raise AssertionError("not called here")


def handle(*_: object) -> bytes:
    return b"answer"


async def handle_later(*_: object) -> bytes:
    return b"answer"


@pytest.mark.parametrize(("process", "takes_large_bodies"), [(handle, False), (handle_later, True)])
def test_a_route_whose_bodies_are_limited_or_copied_has_no_templates(
    process: Callable[..., bytes], takes_large_bodies: bool
):
    kind = SendMessageRequestHeaderV2
    route = Route(RequestCode.SEND_MESSAGE_V2, process, kind, takes_large_bodies=takes_large_bodies, runs=Runs())
    with pytest.raises(ValueError, match="request code 310: a route with runs must take large bodies"):
        SignedRuns(route, Runs(), lambda _: (), lambda _name, _rights: pytest.fail("not called"))
