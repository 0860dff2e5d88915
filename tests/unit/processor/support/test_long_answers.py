import asyncio
import threading

import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, TopicList
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support import long_answers
from rocketbroker.processor.support.long_answers import MAX_PAGE, LoopShare, page_of


@pytest.mark.parametrize(("held_s", "turns"), [(0.0, 10), (60.0, 0)])
async def test_others_run_once_the_loop_was_held_for_long_enough(monkeypatch, held_s, turns):
    monkeypatch.setattr(long_answers, "HELD_S", held_s)
    runs: list[None] = []

    async def other():
        while True:
            runs.append(None)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    share = LoopShare()
    for _ in range(10):
        await share.turn()
    assert len(runs) == turns
    task.cancel()


TABLE = {name: name.upper() for name in "dbcae"}
VERSION = DataVersion(1000, 7, 0)
SEEN = VERSION.encode().decode()


def test_whole_table_for_clients_that_know_no_pages():
    assert page_of(TABLE, VERSION, None, None, None) == TABLE


def test_pages_follow_each_other_by_alphabet():
    pages = [page_of(TABLE, VERSION, SEEN, first, 2) for first in (0, 2, 4, 6)]
    assert [list(page) for page in pages] == [["a", "b"], ["c", "d"], ["e"], []]


@pytest.mark.parametrize("seen", [None, "", " ", DataVersion(1000, 8, 0).encode().decode()])
def test_pages_restart_when_the_table_has_changed(seen):
    assert list(page_of(TABLE, VERSION, seen, 2, 2)) == ["a", "b"]


def test_a_page_has_a_limit():
    many = dict.fromkeys(map(str, range(MAX_PAGE + 5)), 0)
    assert len(page_of(many, VERSION, "", 0, None)) == MAX_PAGE
    assert len(page_of(many, VERSION, "", 0, 2**31 - 1)) == MAX_PAGE


@pytest.mark.parametrize(
    ("seen", "first", "size", "named"),
    [
        (SEEN, -1, 5, "first entry -1"),
        (SEEN, 0, 0, "page size 0"),
        (SEEN, 0, -3, "page size -3"),
        ("{", 0, 1, "dataVersion"),
    ],
)
def test_bad_pages_are_named(seen, first, size, named):
    with pytest.raises(BrokerResponseError, match=named) as error:
        page_of(TABLE, VERSION, seen, first, size)
    assert error.value.code == ResponseCode.INVALID_PARAMETER


class Body(TopicList):
    def encode(self):
        return threading.current_thread().name.encode()


@pytest.mark.parametrize(("entries", "on_loop"), [(500, True), (501, False)])
async def test_a_long_answer_is_encoded_off_the_loop(encoder, entries, on_loop):
    name = await encoder.encode(Body(), entries)
    assert (name == threading.current_thread().name.encode()) is on_loop


def test_an_answer_of_too_many_entries_is_rejected(encoder):
    encoder.check(65_536)
    with pytest.raises(BrokerResponseError) as error:
        encoder.check(65_537)
    assert error.value.code == ResponseCode.SYSTEM_ERROR
    assert error.value.remark.startswith(
        "maxEntriesPerAnswer: 65,537 entries exceed the limit of 65,536; ask for fewer"
    )
