import shutil
from pathlib import Path

from tests.support.mixed_store import MixedStore
from tests.support.store_damage import damage, is_sound, places, slow_rows_of, tear

COUNT = 400


def test_a_store_is_the_same_for_the_same_seed(tmp_path: Path):
    stores = [MixedStore(tmp_path / name, COUNT, seed).make() for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    logs = [(store.root / "commitlog" / ("0" * 20)).read_bytes() for store in stores]
    assert logs[0] == logs[1] != logs[2]
    assert [sum(store.counts.values()) for store in stores] == [COUNT] * 3


def test_what_is_damaged_is_known_and_all_else_is_left(tmp_path: Path):
    MixedStore(tmp_path / "sound", COUNT).make()
    records = list(places(tmp_path / "sound" / "commitlog"))
    assert len(records) == COUNT
    log = shutil.copytree(tmp_path / "sound", tmp_path / "damaged") / "commitlog"
    damages = damage(log, records, seed=1, times=12)
    assert {each.kind for each in damages} == {"magic", "size", "position", "body", "zeros", "noise"}
    torn = tear(log, records)
    data = (log / ("0" * 20)).read_bytes()
    lost = [
        each
        for each in records
        if not is_sound(data[each.position : each.position + each.size], each.position, each.size)
    ]
    assert torn in lost
    for place in lost[:-1]:
        assert any(
            each.position < place.position + place.size and place.position < each.position + each.length
            for each in damages
        )
    for kind in ("magic", "size", "position"):
        hit = [each for each in damages if each.kind == kind]
        assert all(any(place.position <= each.position < place.position + place.size for place in lost) for each in hit)
    rows = list(slow_rows_of(log, records, "b"))
    assert len(rows) == COUNT - len(lost)
    assert {row["broker"] for row in rows} == {"b"}
