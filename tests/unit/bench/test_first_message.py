"""The time to a first message: one round in this process, and the times_table of all rounds."""

from bench.starts import Times, embedded, times_table


async def test_a_round_has_three_times():
    times = await embedded()

    assert times.ready > 0
    assert times.first > 0
    assert times.stopped > 0


def test_the_table_has_medians_and_longest_times():
    rounds = [Times(ready, 20.0, 1234.4) for ready in (1.0, 3.0, 2.0)]

    assert times_table({"ours": rounds}).splitlines()[2:] == [
        "| ours | 3 | 2 (longest 3) | 20 (longest 20) | 1,234 (longest 1,234) |"
    ]
