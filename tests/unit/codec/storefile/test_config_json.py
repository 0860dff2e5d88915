"""Config files as RocketMQ wrote them."""

import pytest

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.storefile.config_json import dumps_config, loads_config
from rocketbroker.common.errors import CodecError
from tests.support import golden_store

ONE_LINE = ("timermetrics", "transactionMetrics")
CONFIGS = [
    (name, path)
    for name in golden_store.NAMES
    for path in golden_store.files(name)
    if path.startswith(("config/", "compaction/")) and "timercheck" not in path and not path.endswith("/")
]


@pytest.mark.parametrize(("name", "path"), CONFIGS)
def test_golden_configs_come_back_byte_for_byte(name: str, path: str) -> None:
    data = golden_store.files(name)[path]
    value = loads_config(memoryview(data))
    again = fastjson.dumps(value) if any(part in path for part in ONE_LINE) else dumps_config(value)
    assert again == data


@pytest.mark.parametrize(("name", "path"), CONFIGS)
def test_a_golden_config_cut_at_any_byte_is_rejected(name: str, path: str) -> None:
    data = golden_store.files(name)[path]
    for length in range(0, len(data), max(1, len(data) // 400)):
        with pytest.raises(CodecError):
            loads_config(data[:length])


def test_integer_keys_come_as_they_are_written() -> None:
    offsets = loads_config(golden_store.files("clean")["config/delayOffset.json"])["offsetTable"]
    assert offsets == {1: 7, 3: 2}
    assert loads_config(b'{"offsetTable":{"1":7}}')["offsetTable"] == {"1": 7}


@pytest.mark.parametrize("data", [b"[]", b"1", b"null", b'"text"'])
def test_a_value_that_is_not_an_object_is_rejected(data: bytes) -> None:
    with pytest.raises(CodecError, match="must hold one JSON object"):
        loads_config(data)
