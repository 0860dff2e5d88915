from rocketbroker.broker.transaction.half_offsets import HalfOffsets

KEY = (b"PG", b"1", 5)


def test_the_position_moves_over_what_is_ended_in_order():
    offsets = HalfOffsets(3, 7)
    offsets.end(5)
    offsets.end(4)
    assert (offsets.position, offsets.ended) == (3, {4, 5})
    assert [offset for offset in range(8) if offsets.is_open(offset)] == [3, 6, 7]
    offsets.end(3)
    assert (offsets.position, offsets.ended) == (6, set())


def test_a_copy_stands_for_its_transaction_until_it_is_ended():
    offsets = HalfOffsets()
    offsets.put_back(0, 9, KEY)
    assert (offsets.position, offsets.copies) == (1, {KEY: 9})
    offsets.end(9, KEY)
    assert not offsets.copies
    assert not offsets.is_open(9)


def test_an_op_message_is_needed_while_the_position_is_before_what_it_ends():
    offsets = HalfOffsets(0, 10)
    assert offsets.op_position == 10
    offsets.op_written(10, [2, 1])
    offsets.op_written(11, [3])
    offsets.end(1)
    offsets.end(2)
    assert offsets.op_position == 10
    offsets.end(0)
    assert (offsets.position, offsets.op_position) == (3, 11)
    offsets.end(3)
    assert offsets.op_position == 12


def test_messages_removed_from_the_queue_are_skipped():
    offsets = HalfOffsets()
    for offset in (1, 4, 5, 7):
        offsets.end(offset)
    offsets.skip_to(4)
    assert (offsets.position, offsets.ended) == (6, {7})
    offsets.skip_to(2)
    assert offsets.position == 6
