import pytest

from rocketbroker.transport.receive_buffer import SHARED_SIZE, ReceiveBuffer


def make() -> ReceiveBuffer:
    return ReceiveBuffer(memoryview(bytearray(SHARED_SIZE)))


def read(buffer: ReceiveBuffer, data: bytes) -> memoryview:
    room = buffer.room()
    assert len(room) >= len(data)
    room[: len(data)] = data
    return buffer.received(len(data))


def held(buffer: ReceiveBuffer) -> int:
    """Bytes of memory that the connection holds for itself."""
    return len(buffer._rest) + (len(buffer._large) if buffer._large is not None else 0)


def test_what_is_consumed_at_once_costs_no_memory():
    buffer = make()

    assert bytes(read(buffer, b"abc")) == b"abc"
    buffer.clear()

    assert held(buffer) == 0
    assert len(buffer.room()) == SHARED_SIZE


def test_kept_bytes_precede_those_read_next():
    buffer = make()
    data = read(buffer, b"abcdef")
    buffer.keep(data[4:], 10)

    assert bytes(read(buffer, b"ghij")) == b"efghij"


def test_connections_that_share_a_buffer_keep_their_rests_apart():
    shared = memoryview(bytearray(SHARED_SIZE))
    one, two = ReceiveBuffer(shared), ReceiveBuffer(shared)
    one.keep(read(one, b"one"), 8)
    two.keep(read(two, b"two"), 8)

    assert bytes(read(one, b"-1")) == b"one-1"
    one.clear()
    assert bytes(read(two, b"-2")) == b"two-2"


@pytest.mark.parametrize("size", [SHARED_SIZE - 1, SHARED_SIZE, SHARED_SIZE + 1, 3 * SHARED_SIZE + 7, 15 << 20])
@pytest.mark.parametrize("step", [SHARED_SIZE, 1000 * 7 + 1])
def test_a_frame_of_any_size_comes_together(size: int, step: int):
    if size // step > 1000:
        step = 50_021
    buffer = make()
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    got = 0
    while True:
        count = min(step, size - got, len(buffer.room()))
        whole = read(buffer, data[got : got + count])
        got += count
        assert len(whole) == got
        if got == size:
            break
        buffer.keep(whole, size)

    assert bytes(whole) == data
    buffer.clear()
    assert held(buffer) == 0


@pytest.mark.parametrize("came", [8, 1000, 100_000, SHARED_SIZE, SHARED_SIZE * 4])
def test_memory_grows_with_what_came_and_not_with_what_is_claimed(came: int):
    buffer = make()
    got = 0
    while got < came:
        count = min(came - got, len(buffer.room()))
        whole = read(buffer, bytes(count))
        got += count
        buffer.keep(whole, 15 << 20)

    assert held(buffer) <= 2 * came


def test_the_last_part_of_a_large_frame_never_reads_past_it():
    buffer = make()
    size = SHARED_SIZE + 1000
    buffer.keep(read(buffer, bytes(SHARED_SIZE)), size)

    assert len(buffer.room()) == 1000
