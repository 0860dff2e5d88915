"""Traces as Apache's clients write them."""

from rocketbroker.codec.message.trace_data import (
    EndTransactionTrace,
    PubTrace,
    SubAfterTrace,
    SubBeforeTrace,
    Trace,
    decode_traces,
    encode_trace,
    trace_keys,
)

ID = "AC1415116D1418B4AAC217FE1B4E0000"
OFFSET_ID = "0A9A002600002A9F0000000000002329"


def test_a_send_has_the_fields_of_apaches_encoder():
    """The text is that of Apache's TraceDataEncoderTest."""
    trace = PubTrace(
        17,
        "DefaultRegion",
        "PID-test",
        "topic-test",
        ID,
        "Tags",
        "Keys",
        "127.0.0.1:10911",
        26,
        245,
        0,
        OFFSET_ID,
        True,
    )
    fields = f"Pub 17 DefaultRegion PID-test topic-test {ID} Tags Keys 127.0.0.1:10911 26 245 0 {OFFSET_ID} true"
    assert encode_trace(trace) == fields.replace(" ", "\x01") + "\x02"
    assert trace_keys(trace) == [ID, "Keys"]


def test_a_consumption_and_a_transaction_have_theirs():
    before = SubBeforeTrace(17, "r", "g", "request", ID, 2, "a b")
    assert encode_trace(before) == f"SubBefore 17 r g request {ID} 2 ".replace(" ", "\x01") + "a b\x02"
    assert trace_keys(before) == [ID, "a", "b"]
    after = SubAfterTrace("request", ID, 3, False, "", 4, 17, "g")
    assert encode_trace(after) == f"SubAfter request {ID} 3 false  4 17 g".replace(" ", "\x01") + "\x02"
    end = EndTransactionTrace(17, "r", "g", "t", ID, "", "k", "h:1", 2, "tid", "COMMIT_MESSAGE", True)
    assert (
        encode_trace(end)
        == f"EndTransaction 17 r g t {ID}  k h:1 2 tid COMMIT_MESSAGE true".replace(" ", "\x01") + "\x02"
    )


def test_traces_are_decoded_as_they_were_encoded():
    traces: list[Trace] = [
        PubTrace(1, "r", "PG", "T", "ID", "A", "k1 k2", "h:1", 5, 7, 0, "OFFSET", True),
        SubAfterTrace("q", "ID", 3, False, "k1", 4, 9, "CG"),
    ]
    assert decode_traces("".join(map(encode_trace, traces))) == traces


def test_traces_of_older_clients_and_of_unknown_kinds():
    older = "SubAfter\x01q\x01ID\x013\x01true\x01k1\x02"
    assert decode_traces(older) == [SubAfterTrace("q", "ID", 3, True, "k1", 0, 0, "")]
    for text in ("", "\x02", "Recall\x011\x02", "Pub\x011\x02", older.replace("\x013\x01", "\x01many\x01"), "no trace"):
        assert decode_traces(text) == []
