from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_properties import find_properties_of_batch
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from rocketbroker.store.queue.dispatch_request import DispatchRun

NOW = 1_795_255_162_829

# Unique keys of a batch, its tags, its keys, its topic, and whether its messages come one by one.
batches = st.tuples(
    st.integers(1, 2).flatmap(
        lambda length: st.lists(st.text("aé", min_size=length, max_size=length), min_size=1, max_size=5)
    ),
    st.sampled_from([b"", b"TAGS\x01T\x02", b"TAGS\x01Tags\x02"]),
    st.sampled_from([b"", b"", b"KEYS\x01k j\x02"]),
    st.integers(0, 1),
    st.booleans(),
)


def runs_of(given_batches: list[tuple[list[str], bytes, bytes, int, bool]], queues: list[ConsumeQueue]):
    """Yield each batch as a run, and whether its messages come one by one."""
    for number, (unique_keys, tags, keys, topic, single) in enumerate(given_batches):
        raws = [b"UNIQ_KEY\x01%b\x02%b%b" % (key.encode(), tags, keys) for key in unique_keys]
        places = [1000 * number + each for each in range(len(raws))]
        entries = b"".join(ENTRY.pack(place, 100, 100) for place in places)
        found = find_properties_of_batch(raws)
        yield DispatchRun(queues[topic], 0, entries, NOW + 1000 * number, *found), single


def index_bytes(root: Path, given_batches: list[tuple[list[str], bytes, bytes, int, bool]], *, joined: bool) -> bytes:
    """Return the bytes of an index that got the batches, with their unique keys joined or not."""
    queues = [ConsumeQueue(topic, 0, root / topic, 200) for topic in ("T", "Other")]
    index = IndexService(root / f"index{joined}", 50, 2000, lambda: "20261121095923270")
    for run, single in runs_of(given_batches, queues):
        if single:
            index.add(list(run.requests()))
        else:
            index.add_run(run if joined else run._replace(joined_unique_keys=b""))
    assert index.waiting >= sum(len(unique_keys) for unique_keys, *_ in given_batches)
    index.flush()
    assert index.waiting == 0
    content = index.files[0].file.path.read_bytes()
    index.close()
    return content


@given(st.lists(batches, min_size=1, max_size=8))
def test_the_index_of_batches_is_that_of_their_messages(given_batches) -> None:
    with TemporaryDirectory() as root:
        assert index_bytes(Path(root), given_batches, joined=True) == index_bytes(
            Path(root), given_batches, joined=False
        )


def test_a_cut_discards_waiting_keys_of_batches(tmp_path: Path) -> None:
    alike = [(["a", "b"], b"", b"", 0, False), (["c", "d"], b"", b"", 0, False)]
    index = IndexService(tmp_path / "index", 50, 2000, lambda: "20261121095923270")
    for run, _ in runs_of(alike, [ConsumeQueue("T", 0, tmp_path / "T", 200)]):
        assert run.joined_unique_keys
        index.add_run(run)

    assert index.cut(1000) == 2

    assert index.waiting == 2
    index.close()
