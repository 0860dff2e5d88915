import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.pop_info import (
    REVIVE_GROUP,
    ExtraInfo,
    OrderCountKey,
    PoppedQueue,
    decode_extra_info,
    decode_fields,
    msg_offset_entry,
    normal_topic,
    order_count_entries,
    parse_msg_offset_info,
    parse_order_count_info,
    parse_start_offset_info,
    pop_retry_topic,
    real_topic,
    retry_flag,
    revive_topic,
    start_offset_entry,
)
from rocketbroker.common.errors import CodecError

NAME = st.text("%|abcXYZ019_-", min_size=1, max_size=20).filter(lambda name: not name.startswith("%RETRY%"))
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
RETRY = st.sampled_from("012")
QUEUES = st.builds(PoppedQueue, RETRY, INT)


# What ExtraInfoUtil of 5.5.0 builds.
HANDLE = "10 1700000000000 60000 5 2 broker-a 2 12"


def test_names_are_those_of_java():
    assert revive_topic("DefaultCluster") == "rmq_sys_REVIVE_LOG_DefaultCluster"
    assert REVIVE_GROUP == "CID_RMQ_SYS_REVIVE_GROUP"
    assert pop_retry_topic("t", "g") == "%RETRY%g_t"
    assert pop_retry_topic("t", "g", version=2) == "%RETRY%g+t"


@given(NAME, NAME, st.sampled_from([1, 2]))
def test_a_retry_topic_leads_back_to_its_topic(topic: str, group: str, version: int):
    retry_topic = pop_retry_topic(topic, group, version)

    assert normal_topic(retry_topic, group) == topic
    assert retry_flag(retry_topic, group) == str(version)
    assert real_topic(topic, group, str(version)) == retry_topic


@given(NAME, NAME)
def test_a_normal_topic_is_itself(topic: str, group: str):
    assert normal_topic(topic, group) == topic
    assert retry_flag(topic, group) == "0"
    assert real_topic(topic, group, "0") == topic


def test_a_retry_topic_of_another_group_is_left_alone():
    assert normal_topic("%RETRY%other_t", "g") == "%RETRY%other_t"


def test_an_unknown_retry_is_rejected():
    with pytest.raises(CodecError, match="retry '3': expected 0, 1 or 2"):
        real_topic("t", "g", "3")


def test_a_handle_is_read_and_written_as_java_writes_it():
    info = ExtraInfo(10, 1700000000000, 60000, 5, "2", "broker-a", 2, 12)

    assert info.encode() == HANDLE
    assert decode_extra_info(HANDLE) == info
    assert decode_extra_info(f"{HANDLE} 4096") == info
    assert not info.is_order
    assert info._replace(revive_qid=999).is_order


@given(st.builds(ExtraInfo, LONG, LONG, LONG, INT, RETRY, NAME, INT, LONG))
def test_each_handle_survives_its_encoding(info: ExtraInfo):
    assert decode_extra_info(info.encode()) == info


# Numbers at the limits of what the shortcut takes, texts that it must not take, and a replaced character.
FIELD = st.one_of(
    st.integers(-(10**19), 10**19).map(str),
    st.sampled_from(
        ["", "-", "-0", "007", "+1", "1_0", "\u0661", "9" * 18, "9" * 19, "-" + "9" * 20, "1\n", "3", "b a"]
    ),
    st.text(max_size=5),
)


@given(st.builds(ExtraInfo, LONG, LONG, LONG, INT, RETRY, NAME, INT, LONG), st.data())
def test_the_shortcut_for_usual_handles_reads_what_the_plain_way_reads(info: ExtraInfo, data: st.DataObject):
    fields = info.encode().split(" ") + data.draw(st.lists(FIELD, max_size=3))
    place = data.draw(st.integers(0, len(fields) - 1))
    fields[place] = data.draw(FIELD | st.just(fields[place]))
    text = " ".join(fields)

    results = []
    for read in (decode_extra_info, decode_fields):
        try:
            results.append(repr(read(text)))
        except CodecError as error:
            results.append(str(error))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected 8 to 10 fields instead of 1"),
        ("10 1700000000000 60000 5 2 broker-a 2", "expected 8 to 10 fields instead of 7"),
        (f"{HANDLE} 1 2 3", "expected 8 to 10 fields instead of 11"),
        ("x 1 60000 5 2 broker-a 2 12", "'x' is not a number"),
        ("10 1 60000 2147483648 2 broker-a 2 12", "'2147483648' is not a number from -2147483648 to 2147483647"),
        ("10 1 60000 5 2 broker-a 2 9223372036854775808", "'9223372036854775808' is not a number"),
        ("10 1 60000 5 x broker-a 2 12", "retry 'x': expected 0, 1 or 2"),
        ("10 1 6_0 5 0 broker-a 2 12", "'6_0' is not a number"),
        ("10 \u0661 60000 5 0 broker-a 2 12", "is not a number"),
    ],
)
def test_a_wrong_handle_is_rejected(text: str, reason: str):
    with pytest.raises(CodecError, match=reason):
        decode_extra_info(text)


@given(st.text(max_size=60))
def test_any_other_text_is_a_codec_error(text: str):
    for parse in (decode_extra_info, parse_start_offset_info, parse_msg_offset_info, parse_order_count_info):
        try:
            parse(text)
        except CodecError:
            continue


def test_texts_of_an_answer_are_those_of_java():
    starts = [start_offset_entry("0", 2, 5), start_offset_entry("1", 0, 1)]
    messages = [msg_offset_entry("0", 2, [5, 7]), msg_offset_entry("1", 0, [1])]

    assert ";".join(starts) == "0 2 5;1 0 1"
    assert ";".join(messages) == "0 2 5,7;1 0 1"
    assert ";".join(order_count_entries("0", 2, {5: 3, 6: 0})) == "0 qo2%5 3;0 2 0"
    assert order_count_entries("0", 2, {5: 3, 6: 2}) == ["0 qo2%5 3", "0 qo2%6 2", "0 2 2"]


@given(st.dictionaries(QUEUES, st.lists(LONG, min_size=1, max_size=5), max_size=4))
def test_what_was_built_is_parsed(queues: dict[PoppedQueue, list[int]]):
    starts = ";".join(start_offset_entry(*queue, offsets[0]) for queue, offsets in queues.items())
    messages = ";".join(msg_offset_entry(*queue, offsets) for queue, offsets in queues.items())

    assert parse_start_offset_info(starts) == {queue: offsets[0] for queue, offsets in queues.items()}
    assert parse_msg_offset_info(messages) == queues


@given(QUEUES, st.dictionaries(LONG, st.integers(0, 2**31 - 1), min_size=1, max_size=5))
def test_order_counts_are_parsed(queue: PoppedQueue, counts: dict[int, int]):
    parsed = parse_order_count_info(";".join(order_count_entries(*queue, counts)))

    assert parsed.pop(OrderCountKey(*queue, None)) == min(counts.values())
    assert parsed == {OrderCountKey(*queue, offset): count for offset, count in counts.items() if count}


@pytest.mark.parametrize("parse", [parse_start_offset_info, parse_msg_offset_info, parse_order_count_info])
def test_wrong_entries_are_rejected(parse):
    assert parse("") == {}
    for text, reason in [
        ("0 2", "expected 3 fields instead of 2 in '0 2'"),
        ("3 2 5", "retry '3': expected 0, 1 or 2"),
        ("0 x 5", "'x' is not a number"),
        ("0 2 x", "'x' is not a number"),
        ("0 2 5;0 2 5", "second entry for "),
        ("0 2 5;", "expected 3 fields instead of 1 in ''"),
    ]:
        with pytest.raises(CodecError, match=reason):
            parse(text)


@pytest.mark.parametrize("name", ["qo2", "2%5"])
def test_an_order_count_of_a_wrong_name_is_rejected(name: str):
    with pytest.raises(CodecError, match=f"a queueId instead of '{name}'"):
        parse_order_count_info(f"0 {name} 1")
