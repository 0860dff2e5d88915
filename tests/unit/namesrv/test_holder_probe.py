"""A holder of a place that no longer answers loses its connection."""

from collections.abc import AsyncIterator

import pytest

from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.namesrv.holder_probe import HolderProbe
from tests.support.fakes import FakeClient
from tests.support.waiting import turns


@pytest.fixture
async def tasks() -> AsyncIterator[TaskOwner]:
    owner = TaskOwner("test")
    yield owner
    await owner.stop()


async def test_one_that_answers_anything_stays(tasks: TaskOwner) -> None:
    holder = FakeClient(response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not served"))
    probe = HolderProbe(tasks)
    probe.ask("h:1", holder)
    probe.ask("h:1", holder)
    await turns()
    assert (len(holder.asked), holder.is_open) == (1, True)
    probe.ask("h:1", holder)
    await turns()
    assert len(holder.asked) == 2


async def test_one_that_is_silent_is_closed(tasks: TaskOwner) -> None:
    holder = FakeClient(RemotingTimeoutError("no answer"))
    HolderProbe(tasks, timeout_s=0.5).ask("h:1", holder)
    await turns()
    reason = "the broker at h:1 did not answer within 0.5 s, and another broker claims its place"
    assert (holder.is_open, holder.close_reason) == (False, reason)
    assert holder.asked[0][1] == 0.5


async def test_one_that_could_not_be_asked_stays(tasks: TaskOwner) -> None:
    holder = FakeClient(RemotingSendError("too far behind"))
    HolderProbe(tasks).ask("h:1", holder)
    await turns()
    assert holder.is_open
