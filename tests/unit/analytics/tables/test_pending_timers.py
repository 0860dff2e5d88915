import random

import numpy as np

from rocketbroker.analytics.tables.pending_timers import TimerState, slots_of
from rocketbroker.codec.storefile.timer_slots import slot_of

DAY_MS = 86_400_000


def test_slots_of_many_are_those_of_each():
    chance = random.Random(1)
    stored = [1_795_255_168_558 + chance.randrange(DAY_MS) for _ in range(2_000)]
    out = [at + chance.randrange(-5_000, 4 * DAY_MS) for at in stored]
    out += [at + ahead for at in stored[:20] for ahead in (0, 2 * DAY_MS - 1000, 2 * DAY_MS, 2 * DAY_MS + 999)]
    stored += [at for at in stored[:20] for _ in range(4)]
    for precision_ms, window_ms in ((1000, 2 * DAY_MS), (100, 200), (500, 7 * 500), (1, 1 << 62)):
        state = TimerState((), precision_ms, window_ms)
        found = slots_of(np.array(out), np.array(stored), state).tolist()
        assert found == [slot_of(*each, precision_ms, window_ms) for each in zip(out, stored, strict=True)]
