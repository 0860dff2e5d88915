from rocketbroker.codec.remoting.custom_header import from_ext_fields
from rocketbroker.codec.remoting.headers.query_message import QueryMessageRequestHeader
from tests.support.golden_frames import requests_of


def test_recorded_clients_say_twice_whether_the_key_is_unique():
    headers = [from_ext_fields(frame.command().header, QueryMessageRequestHeader) for frame in requests_of(12)]

    assert {(header.index_type, header.unique_key_query) for header in headers} == {("K", False), ("U", True)}
    assert all(header.end_timestamp <= 2**63 - 1 for header in headers)


def test_older_clients_say_it_by_the_flag_or_not_at_all():
    fields = {"topic": "T", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9223372036854775807"}

    assert from_ext_fields(fields, QueryMessageRequestHeader).unique_key_query is False
    assert from_ext_fields(fields | {"_UNIQUE_KEY_QUERY": "true"}, QueryMessageRequestHeader).unique_key_query is True
