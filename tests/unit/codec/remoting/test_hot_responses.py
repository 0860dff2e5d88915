import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.pop_info import PoppedQueue, msg_offset_entry, order_count_entries, start_offset_entry
from rocketbroker.codec.remoting.frame import LENGTH, decode_frame, encode_frame
from rocketbroker.codec.remoting.headers.message import PullMessageResponseHeader
from rocketbroker.codec.remoting.headers.pop import PopMessageResponseHeader
from rocketbroker.codec.remoting.hot_responses import (
    bare_success_response,
    frames,
    one_send_response,
    one_send_template,
    pop_response_head,
    pull_response_head,
    region_suffix,
    send_response,
    send_responses,
    send_template,
    success_response,
)
from rocketbroker.codec.remoting.remoting_command import Command, from_ext_fields, response
from tests.support.golden_frames import answers_to
from tests.support.pop_script import golden_exchanges

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
SUFFIX = region_suffix("DefaultRegion", trace_on=True)


def same_as(frame: bytes, opaque: int, answer: Command) -> None:
    """The frame is complete and holds what the general encoder makes of the answer."""
    answer.opaque = opaque
    assert LENGTH.unpack_from(frame)[0] == len(frame) - 4
    assert decode_frame(memoryview(frame)[4:]) == decode_frame(memoryview(encode_frame(answer))[4:])


@given(INT)
def test_success(opaque: int):
    same_as(success_response(opaque), opaque, response(header={}))


@given(INT, INT, LONG, st.none() | TEXT, TEXT, st.booleans())
def test_send(opaque: int, queue_id: int, offset: int, unique_key: str | None, region: str, trace_on: bool):
    suffix = region_suffix(region, trace_on=trace_on)
    key = None if unique_key is None else unique_key.encode()
    frame = send_response(opaque, queue_id, offset, b"7F01,7F02", key, suffix)

    fields = {
        "queueId": queue_id,
        "queueOffset": offset,
        "msgId": "7F01,7F02",
        "transactionId": unique_key,
        "MSG_REGION": region,
        "TRACE_ON": trace_on,
    }
    same_as(frame, opaque, response(header=fields))


@given(INT, st.integers(0, 30), TEXT, LONG, LONG, LONG, LONG, st.binary(max_size=50), INT, INT)
def test_pull(  # noqa: PLR0917 - one argument for each field of the answer
    opaque, code, remark, suggested, following, least, most, body, topic_flag, group_flag
):
    head = pull_response_head(
        opaque, code, remark, suggested, following, least, most, len(body), topic_flag, group_flag
    )

    header = PullMessageResponseHeader(
        suggested, following, least, most, topic_sys_flag=topic_flag, group_sys_flag=group_flag
    )
    same_as(head + body, opaque, response(code, remark, header, body))
    assert bytes(decode_frame(memoryview(head + body)[4:]).body) == body


@given(INT)
def test_bare_success(opaque: int):
    same_as(bare_success_response(opaque), opaque, response())


OFFSETS = st.lists(LONG, min_size=1, max_size=40)
POPPED = st.dictionaries(st.builds(PoppedQueue, st.sampled_from("012"), INT), OFFSETS, min_size=1, max_size=4)


@given(INT, LONG, LONG, INT, LONG, POPPED, st.booleans(), st.binary(max_size=50))
def test_pop(  # noqa: PLR0917 - one argument for each field of the answer
    opaque, pop_time, invisible_time, revive_qid, rest, popped: dict[PoppedQueue, list[int]], is_order, body
):
    counts = [
        entry
        for queue, offsets in popped.items()
        for entry in order_count_entries(*queue, {offset: abs(offset) % 3 for offset in offsets})
    ]
    fields = PopMessageResponseHeader(
        pop_time,
        invisible_time,
        revive_qid,
        rest,
        ";".join(start_offset_entry(*queue, offsets[0]) for queue, offsets in popped.items()),
        ";".join(msg_offset_entry(*queue, offsets) for queue, offsets in popped.items()),
        ";".join(counts) if is_order else None,
    )

    frame = pop_response_head(opaque, fields, len(body)) + body

    same_as(frame, opaque, response(0, "FOUND", fields, body))
    assert bytes(decode_frame(memoryview(frame)[4:]).body) == body


@pytest.mark.parametrize(("code", "expected"), [(200050, 25), (200051, 11), (200151, 2)])
def test_pops_and_acknowledgements_are_answered_with_the_recorded_bytes(code: int, expected: int):
    checked = 0
    for exchange in golden_exchanges():
        answer = exchange.answer()
        if exchange.question().code != code or answer.code:
            continue
        if answer.header:
            fields = from_ext_fields(answer.header, PopMessageResponseHeader)
            made = pop_response_head(answer.opaque, fields, len(answer.body)) + answer.body
        else:
            made = bare_success_response(answer.opaque)
        assert made == exchange.response
        checked += 1
    assert checked == expected


@pytest.mark.parametrize(("code", "expected"), [(10, 14), (310, 147), (320, 4)])
def test_sends_are_answered_with_the_recorded_bytes(code: int, expected: int):
    checked = 0
    for _, answer in answers_to(code):
        assert answer
        if answer.binary or answer.code:
            continue
        fields = answer.command().header
        if "recallHandle" in fields:
            continue
        numbers = int(fields["queueId"]), int(fields["queueOffset"]), fields["msgId"].encode()
        unique_key = fields["transactionId"].encode() if "transactionId" in fields else None
        assert send_response(answer.opaque, *numbers, unique_key, SUFFIX) == answer.data
        checked += 1
    assert checked == expected


def test_a_unique_key_that_is_no_utf_8_still_makes_a_frame_that_is():
    frame = send_response(1, 2, 3, b"7F", b"\xff", SUFFIX)

    same_as(frame, 1, response(header=decode_frame(memoryview(frame)[4:]).header))
    assert b'"transactionId":"\xef\xbf\xbd"' in frame


@pytest.mark.parametrize(("code", "expected"), [(11, 412), (361, 29)])
def test_pulls_are_answered_with_the_recorded_bytes(code: int, expected: int):
    checked = 0
    for _, answer in answers_to(code):
        assert answer
        command = answer.command()
        if answer.binary or not command.header:
            continue
        number = {name: int(text) for name, text in command.header.items()}
        head = pull_response_head(
            answer.opaque,
            answer.code,
            command.remark or "",
            number["suggestWhichBrokerId"],
            number["nextBeginOffset"],
            number["minOffset"],
            number["maxOffset"],
            len(command.body),
            number["topicSysFlag"],
            number["groupSysFlag"],
        )
        assert head + bytes(command.body) == answer.data
        checked += 1
    assert checked == expected


@pytest.mark.parametrize("code", [15, 35])
def test_success_is_answered_with_the_recorded_bytes(code: int):
    answers = [answer for _, answer in answers_to(code) if answer and not answer.binary and not answer.code]

    assert answers
    for answer in answers:
        assert success_response(answer.opaque) == answer.data


@given(
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 99), LONG, st.integers(0, 2**62)), min_size=1),
    TEXT,
    st.booleans(),
)
def test_many_sends_are_answered_like_each(sends: list[tuple[int, int, int, int]], region: str, trace_on: bool):
    suffix, host = region_suffix(region, trace_on=trace_on), b"7F00000100002A9F"
    opaques, queue_ids, queue_offsets, physical_offsets = zip(*sends, strict=True)
    keys = [b"U%d" % number for number in range(len(sends))]
    one = one_send_template(host, suffix)

    answers = frames(
        send_responses(
            [b"%d" % each for each in opaques],
            [b"%d" % each for each in queue_ids],
            queue_offsets,
            physical_offsets,
            keys,
            send_template(host, suffix),
        )
    )

    assert answers == b"".join(
        one_send_response(opaque, queue_id, queue_offset, place, key, one)
        for (opaque, queue_id, queue_offset, place), key in zip(sends, keys, strict=True)
    )
    assert answers == b"".join(
        send_response(opaque, queue_id, queue_offset, host + b"%016X" % place, key, suffix)
        for (opaque, queue_id, queue_offset, place), key in zip(sends, keys, strict=True)
    )
