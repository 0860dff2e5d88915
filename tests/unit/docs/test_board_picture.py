"""Picture of the Grafana board."""

import xml.etree.ElementTree as ET

from docs._ext import board_picture
from rocketbroker.app.mqadmin.grafana_board import ROWS

PICTURE = ET.fromstring(board_picture.render())
SVG = "{http://www.w3.org/2000/svg}"


def test_panels_are_those_of_the_board():
    titles = [each.text for each in PICTURE.iter(f"{SVG}text") if each.get("class") == "title"]

    assert titles == list(board_picture.PANELS)
    assert set(titles) <= {panel.title for row in ROWS.values() for panel in row}


def test_each_panel_has_a_line():
    for panel in PICTURE.iter(f"{SVG}g"):
        assert any(len((line.get("points") or "").split()) > 1 for line in panel.iter(f"{SVG}polyline"))
