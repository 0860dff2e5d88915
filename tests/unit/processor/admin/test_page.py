import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.page import MAX_PAGE, page_of

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
