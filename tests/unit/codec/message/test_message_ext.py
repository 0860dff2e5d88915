"""Properties of a decoded message."""

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from tests.support import golden_store


def message(properties: bytes) -> MessageExt:
    found = decode_record(golden_store.records("clean")[0][1])
    found.properties_bytes = properties
    return found


def test_properties_are_found_before_and_after_the_dict_is_made() -> None:
    found = message(b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02")
    for _ in range(2):
        assert (found.tags, found.keys, found.uniq_key, found.get_property("none")) == ("A", ["k1", "k2"], "u", None)
        assert found.properties == {"TAGS": "A", "KEYS": "k1 k2", "UNIQ_KEY": "u"}
    assert found.properties is found.properties


def test_a_message_without_properties() -> None:
    found = message(b"")
    assert (found.tags, found.keys, found.uniq_key, found.properties) == (None, [], None, {})


def test_a_priority_is_a_number_or_none() -> None:
    assert message(b"_SYS_MSG_PRIORITY_\x013\x02").priority == 3
    assert [message(raw).priority for raw in (b"", b"_SYS_MSG_PRIORITY_\x01-1\x02")] == [None, None]


def test_hosts_and_id_in_text() -> None:
    found = message(b"")
    assert (found.store_host_text, found.offset_msg_id) == ("127.0.0.1:32911", "7F0000010000808F0000000000000000")
