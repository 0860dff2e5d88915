import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.pop_check_point import AckMsg, BatchAckMsg, PopCheckPoint
from rocketbroker.common.errors import CodecError

# Bodies and ids of 5.5.0: fastjson2, and the gen…UniqueId of PopMessageProcessor.
CHECK_POINT = (
    b'{"bm":0,"bn":"broker-a","c":"g","d":[0,2,5],"it":60000,"n":3,"pt":1700000000000,"q":2,'
    b'"reviveTime":1700000060000,"ro":0,"rp":"4","so":10,"sp":true,"t":"t"}'
)
ACK = b'{"ao":12,"bn":"broker-a","c":"g","pt":1700000000000,"q":2,"so":10,"t":"t"}'
BATCH_ACK = b'{"ao":-1,"aol":[10,15],"bn":"broker-a","c":"g","pt":1700000000000,"q":2,"so":10,"t":"t"}'

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
CHECK_POINTS = st.builds(
    PopCheckPoint,
    start_offset=LONG,
    pop_time=LONG,
    invisible_time=LONG,
    num=st.integers(-128, 127),
    queue_id=INT,
    topic=TEXT,
    cid=TEXT,
    bit_map=INT,
    revive_offset=LONG,
    queue_offset_diff=st.none() | st.lists(INT, max_size=5),
    broker_name=st.none() | TEXT,
    re_put_times=st.none() | TEXT,
    suspend=st.booleans(),
    origin_start_offset=st.none() | LONG,
    origin_pop_time=st.none() | LONG,
)
ACKS = (LONG, LONG, TEXT, TEXT, INT, LONG, st.none() | TEXT)
RECORDS = CHECK_POINTS | st.builds(AckMsg, *ACKS) | st.builds(BatchAckMsg, *ACKS, st.lists(LONG, max_size=5))


def check_point(*, num: int = 3, diff: list[int] | None = None) -> PopCheckPoint:
    return PopCheckPoint(10, 1700000000000, 60000, num, 2, "t", "g", queue_offset_diff=diff, broker_name="broker-a")


def test_records_of_java_are_read():
    point = PopCheckPoint.decode(CHECK_POINT)
    ack = AckMsg.decode(ACK)
    batch = BatchAckMsg.decode(BATCH_ACK)

    assert point == PopCheckPoint(
        10, 1700000000000, 60000, 3, 2, "t", "g", 0, 0, [0, 2, 5], "broker-a", "4", True, None, None
    )
    assert point.revive_time == 1700000060000
    assert ack == AckMsg(12, 10, "g", "t", 2, 1700000000000, "broker-a")
    assert batch == BatchAckMsg(-1, 10, "g", "t", 2, 1700000000000, "broker-a", [10, 15])
    assert [record.unique_id for record in (point, ack, batch)] == [
        "t@2@10@g@1700000000000@broker-a@ck",
        "t@2@12@g@1700000000000@broker-a@ack",
        "t@2@[10, 15]@g@1700000000000@bAck",
    ]


def test_records_are_written_by_the_names_of_java():
    for kind, body in ((PopCheckPoint, CHECK_POINT), (AckMsg, ACK), (BatchAckMsg, BATCH_ACK)):
        ours = json.loads(kind.decode(body).encode())
        java = json.loads(body)

        assert ours == {name: java[name] for name in ours}
        assert all(not value for name, value in java.items() if name not in {*ours, "reviveTime"})


def test_fields_that_java_lacks_are_left_out_when_absent():
    replacing = check_point()
    replacing.origin_start_offset, replacing.origin_pop_time = 7, 1600000000000

    assert not {"xso", "xpt"} & set(json.loads(check_point().encode()))
    assert json.loads(replacing.encode()).items() >= {"xso": 7, "xpt": 1600000000000}.items()


@given(RECORDS)
def test_each_record_survives_its_encoding(record: PopCheckPoint | AckMsg):
    assert type(record).decode(memoryview(record.encode())) == record


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `so`"),
        (CHECK_POINT.replace(b'"n":3', b'"n":128'), "`int` <= 127"),
        (CHECK_POINT.replace(b'"c":"g"', b'"c":"\xff"'), "utf-8|UTF-8"),
        (b"[" * 5000, "Expected `object`"),
    ],
)
def test_a_broken_record_is_rejected(body: bytes, reason: str):
    with pytest.raises(CodecError, match=f"^PopCheckPoint: .*({reason})"):
        PopCheckPoint.decode(body)


def test_an_offset_is_found_by_its_distance():
    point = check_point(diff=[0, 2, 5])

    assert [point.index_of_ack(offset) for offset in (9, 10, 11, 12, 15, 16)] == [-1, 0, -1, 1, 2, -1]
    assert [point.offset_by_index(index) for index in range(3)] == [10, 12, 15]


@pytest.mark.parametrize("diff", [None, []])
def test_an_old_check_point_has_consecutive_offsets(diff: list[int] | None):
    point = check_point(diff=diff)

    assert [point.index_of_ack(offset) for offset in (9, 10, 12, 13)] == [-1, 0, 2, -1]
    assert [point.offset_by_index(index) for index in range(3)] == [10, 11, 12]


@given(CHECK_POINTS.filter(lambda point: point.num > 0), st.data())
def test_index_and_offset_are_inverse(point: PopCheckPoint, data: st.DataObject):
    point.queue_offset_diff = data.draw(
        st.none() | st.lists(st.integers(0, 2**31 - 1), min_size=point.num, max_size=point.num, unique=True)
    )

    for index in range(point.num):
        assert point.index_of_ack(point.offset_by_index(index)) == index
