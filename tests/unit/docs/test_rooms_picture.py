"""The picture has every room of the import contracts, inside its frame."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import rocketbroker
from docs._ext import rooms_picture

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = ET.fromstring(rooms_picture.render())
WORDS = [text.text for text in PICTURE.iter(f"{SVG}text")]


def test_each_room_of_the_package_is_drawn():
    rooms = {path.parent.name for path in Path(rocketbroker.__file__).parent.glob("*/__init__.py")}

    assert rooms <= set(WORDS)


def test_each_layer_of_the_contracts_is_drawn():
    names = {name for layers in rooms_picture.contracts().values() for row in layers for name in row}

    assert names <= set(WORDS)


def test_the_stops_of_a_send_are_numbered_in_order():
    numbers = {word for word in WORDS if word and re.fullmatch(r"\d", word)}

    assert numbers == {str(number) for number in range(1, len(rooms_picture.SEND) + 1)}


def test_all_boxes_are_inside_the_frame():
    width, height = (float(number) for number in PICTURE.attrib["viewBox"].split()[2:])
    boxes = [
        {name: float(box.get(name, 0)) for name in ("x", "y", "width", "height")} for box in PICTURE.iter(f"{SVG}rect")
    ]

    assert all(box["x"] + box["width"] <= width and box["y"] + box["height"] <= height for box in boxes)
