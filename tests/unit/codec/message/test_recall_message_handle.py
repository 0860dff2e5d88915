import pytest

from rocketbroker.codec.message.recall_message_handle import RecallMessageHandle, decode_recall_handle
from rocketbroker.common.errors import CodecError
from tests.support.golden_frames import answers_to

HANDLE = RecallMessageHandle(
    "GoldenTopic", "broker-a", "1795254111001", "FD0000000000000000000000000000025B5D4E0E2F2A6912F9B3000F"
)
RECORDED = (
    "djEgR29sZGVuVG9waWMgYnJva2VyLWEgMTc5NTI1NDExMTAwMSBGRDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMjVCNUQ0RTBFMkYyQTY5"
    "MTJGOUIzMDAwRg=="
)


def test_recorded_handle():
    assert HANDLE.encode() == RECORDED
    assert decode_recall_handle(RECORDED) == HANDLE
    assert sum(RECORDED.encode() in exchange.request.header() for exchange in answers_to(370)) == 1


def test_characters_of_their_own_and_no_padding():
    handle = RecallMessageHandle("T", "b", "1", "\u00ff\u00fe>>>???")
    encoded = handle.encode()
    assert {"-", "_"} & set(encoded)
    assert decode_recall_handle(encoded.rstrip("=")) == handle


@pytest.mark.parametrize("text", ["", "!", "djE", "djEgVCBi", "\u00e4", "djEg_w==", "djIgVCBiIDEgbQ==", "====", "d"])
def test_a_system_topic_is_not_a_user_topic(text):
    with pytest.raises(CodecError, match="recall handle is invalid"):
        decode_recall_handle(text)
