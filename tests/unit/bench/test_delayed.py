from bench.delayed import Burst, Options, measure, report


async def test_both_loads_are_delivered(tmp_path):
    for timer in (False, True):
        options = Options(messages=100, rate=200, seconds=1, size=10, timer=timer)
        at_once, late = await measure(tmp_path / str(timer), options)
        assert at_once.rate > 0
        assert len(late) == 200
        assert late[0] >= 0, "early"


def test_the_answer_has_rocketmqs_fields():
    told = report(Options(100_000, 1000, 5, 128, False), Burst(23_456.7, 4.56, 20.1), [1, 2, 3, 90])
    assert told.splitlines() == [
        (
            "100000 messages of 128 B of one delay level, due at once: 23,457 messages/s, 20.1 us of CPU each, "
            "event loop blocked for at most 4.6 ms"
        ),
        "1000 messages/s for 5 s: late by 3 ms (p50), 90 ms (p99), 90 ms at the most; early by 0 ms",
    ]
