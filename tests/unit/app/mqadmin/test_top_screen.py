"""Screen of top: keys, sorting, and lines that fit."""

import pytest
from rich.cells import cell_len

from rocketbroker.app.mqadmin.top_data import (
    BrokerFigures,
    ClientFigures,
    GroupFigures,
    QueueFigures,
    Snapshot,
    TopicFigures,
)
from rocketbroker.app.mqadmin.top_screen import Screen, View

NOON_MS = 1_700_000_000_000
QUEUES = [QueueFigures("Orders", "broker-a", at, 0, 100 * at, 90 * at, 10 * at) for at in range(4)]
SNAPSHOT = Snapshot(
    NOON_MS,
    [
        BrokerFigures("C", "broker-a", 0, "10.0.0.1:10911", "V5_5_0", 1234, 99.4, 0.87, "", {"runtime": "1 day"}),
        BrokerFigures("C", "broker-a", 1, "10.0.0.2:10911", "V5_5_0", 1234, 0, 0.10, "", {"runtime": "1 day"}),
        BrokerFigures("C", "broker-b", 0, "10.0.0.3:10911", problem="no answer within 5 s"),
    ],
    [
        GroupFigures("CG_small", 5, 0.25, [ClientFigures("10.0.0.9@7", "10.0.0.9:4711", "JAVA", "V5_5_0")], QUEUES),
        GroupFigures("CG_large", 70_000, 12),
        GroupFigures("a_group_with_quite_a_long_name_that_fits_no_narrow_screen", 6),
    ],
    [TopicFigures("Orders", 500, 7.5, QUEUES), TopicFigures("Payments", 1), TopicFigures("Audit", 2)],
    3,
    3,
)


def text(screen: Screen, width: int = 100, height: int = 24, snapshot: Snapshot = SNAPSHOT) -> str:
    return "\n".join(line.plain for line in screen.lines(snapshot, width, height))


def press(screen: Screen, *keys: str) -> None:
    for key in keys:
        screen.press(key, SNAPSHOT)


def names(screen: Screen) -> list[str]:
    return [getattr(row, "group", None) or row.topic for row in screen.rows(SNAPSHOT)]


def test_the_summary_counts_what_masters_store_once():
    shown = text(Screen())
    assert "brokers 3 (1 down)" in shown
    assert "in 1,234/s" in shown
    assert "lag 70,011" in shown
    assert "clients 1" in shown
    assert "disk 87%" in shown


def test_lists_are_chosen_sorted_and_turned():
    screen = Screen()
    press(screen, "2")
    assert names(screen)[0] == "CG_large"
    press(screen, "r")
    assert names(screen)[0] == "CG_small"
    press(screen, "s")
    assert names(screen)[:2] == ["CG_large", "CG_small"], "the next column, from the highest rate down"
    press(screen, "3")
    assert names(screen) == ["Orders", "Audit", "Payments"]
    assert screen.view is View.TOPICS


def test_rows_are_marked_opened_and_left():
    screen = Screen()
    press(screen, "2", "down", "down", "down", "enter")
    assert screen.opened == "CG_small"
    shown = text(screen)
    assert "10.0.0.9@7" in shown
    rows = [line.split()[2] for line in shown.splitlines() if line.startswith("Orders ")]
    assert rows == ["3", "2", "1", "0"], "the queue with the largest lag first"
    press(screen, "escape")
    assert not screen.opened
    press(screen, "up", "enter")
    assert screen.opened.startswith("a_group")
    assert "no client is online" in text(screen)


def test_details_of_a_broker_have_its_problem_and_all_it_reports():
    screen = Screen()
    press(screen, "enter")
    assert "runtime: 1 day" in text(screen)
    press(screen, "escape", "end", "enter")
    assert "no answer within 5 s" in text(screen)


def test_a_row_that_is_gone_gives_way_to_the_list():
    screen = Screen(View.GROUPS, opened="deleted")
    assert "CG_large" in text(screen)


def test_a_part_of_a_name_is_found():
    screen = Screen()
    press(screen, "2", "/", "L", "A", "R", "q", "backspace")
    assert (screen.wanted, screen.is_over) == ("LAR", False)
    assert "/LAR_" in text(screen)
    press(screen, "enter")
    assert names(screen) == ["CG_large"]
    press(screen, "escape")
    assert len(names(screen)) == 3
    press(screen, "/", "x", "y", "z")
    assert "none with 'xyz' in its name" in text(screen)


def test_details_do_not_scroll_past_their_end():
    screen = Screen()
    press(screen, "2", "end", "enter")
    for _ in range(3):
        press(screen, "pagedown")
        last = text(screen, 60, 8)
    assert last == text(screen, 60, 8)
    assert "Orders" in last


def test_space_pauses_and_q_ends():
    screen = Screen()
    press(screen, " ")
    assert "paused" in text(screen)
    press(screen, " ", "q")
    assert (screen.is_paused, screen.is_over) == (False, True)


def test_a_failed_look_is_shown_over_the_old_figures():
    screen = Screen(failure="no name server answers")
    assert "no new figures: no name server answers" in text(screen)
    assert "broker-b" in text(screen)


def test_a_part_of_the_names_that_is_asked_is_told():
    many = Snapshot(NOON_MS, [], [GroupFigures(f"G{at}") for at in range(1000)], [], 100, 0)
    screen = Screen(View.GROUPS)
    assert "100 of 1,000 asked each time" in text(screen, snapshot=many)
    screen.press("end", many)
    assert "G999" in text(screen, snapshot=many)


@pytest.mark.parametrize("size", [(40, 12), (40, 24), (20, 8), (10, 5), (1, 1), (80, 24), (200, 60)])
@pytest.mark.parametrize("keys", ["1", "2", "3", ["2", "enter"], ["2", "end", "enter"], ["enter"], ["3", "/", "e"]])
def test_every_view_fits_every_size(size: tuple[int, int], keys: list[str]):
    screen = Screen(failure="a reason that is longer than a narrow screen is wide")
    press(screen, *keys)
    width, height = size
    lines = screen.lines(SNAPSHOT, width, height)
    assert len(lines) <= height
    assert max(cell_len(line.plain) for line in lines) <= width


def test_at_40_columns_the_name_and_the_lag_stay():
    screen = Screen()
    press(screen, "2")
    lines = text(screen, 40, 16).splitlines()
    assert next(line.split() for line in lines if line.startswith("CG_large")) == ["CG_large", "70,000", "12", "0"]
    assert any(line.startswith("a_group") and "… " in line for line in lines)


def test_what_a_client_chose_cannot_steer_the_terminal():
    client = ClientFigures("id\x1b]0;title\x07", "1.2.3.4:5", "JAVA", "V5")
    snapshot = Snapshot(NOON_MS, [], [GroupFigures("G", 1, 0, [client])], [])
    shown = text(Screen(View.GROUPS, opened="G"), snapshot=snapshot)
    assert "\x1b" not in shown
    assert "id\\x1b]0;title\\x07" in shown


def test_figures_that_should_have_been_replaced_show_their_age():
    screen = Screen()
    assert not screen.grow_old(3.9, interval_s=2)
    assert "old" not in text(screen)
    assert screen.grow_old(7.2, interval_s=2)
    assert " 7 s old  " in text(screen)
    screen.is_asking = True
    assert "7 s old, an answer is late" in text(screen)
    assert screen.grow_old(0.0, interval_s=2), "the screen loses its note"
    assert "old" not in text(screen)
    screen.grow_old(7.2, interval_s=2)
    assert all(len(line) <= 40 for line in text(screen, 40).split("\n"))
