"""Names of properties."""

from rocketbroker.codec.message import message_const
from tests.support import golden_store

#: Set by the programs that made the recorded stores.
OWN = {"color", "n", "i", "属性"}


def test_reserved_names_are_constants() -> None:
    names = {value for name, value in vars(message_const).items() if name.startswith("PROPERTY_")}
    assert names > message_const.STRING_HASH_SET
    assert {"KEYS", "TAGS", "UNIQ_KEY", "__CRC32#"} < message_const.STRING_HASH_SET


def test_every_name_a_broker_stored_is_known() -> None:
    names = {value for name, value in vars(message_const).items() if name.startswith("PROPERTY_")}
    stored = {
        key
        for name in golden_store.NAMES
        for message in golden_store.manifest(name)["messages"]
        for key in message["properties"]
    }
    assert stored - names == OWN
    assert len(stored & names) > 15
