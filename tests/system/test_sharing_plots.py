"""The plots of bench/results.md are drawn from the bench's JSON."""
import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree

from conftest import SOURCE

SVG = "{http://www.w3.org/2000/svg}"


def draw(results, folder):
    folder.mkdir()
    subprocess.run([SOURCE / "scripts" / "sharing-plots", results, folder], check=True)
    return {path.name: ElementTree.parse(path).getroot() for path in folder.iterdir()}


def bars(picture):
    """The lengths of those that belong to a row."""
    return [float(bar.get("width")) for bar in picture.iter(SVG + "rect") if bar.get("height") == "13"]


def test_the_committed_results_are_drawn(tmp_path):
    pictures = draw(SOURCE / "bench" / "results.json", tmp_path / "plots")
    shown = set(re.findall(r"images/(sharing-[a-z]+\.svg)", (SOURCE / "bench" / "results.md").read_text()))
    assert set(pictures) == shown
    for name, picture in pictures.items():
        assert bars(picture), name
        assert (SOURCE / "bench" / "images" / name).read_text() == (tmp_path / "plots" / name).read_text(), \
            f"bench/images/{name} is not of bench/results.json; run scripts/sharing-plots"


def test_a_bar_is_as_long_as_what_was_measured(tmp_path):
    row = {"name": "loads, case: kernel=100 gap=100: speed, minimum 50 %", "value": 80.0, "unit": "%", "void": False, "case": "case",
           "figure": "speed", "gpu": 40.0, "alone": 50.0, "without": 20.0, "minimum": 50.0}
    charged = {**row, "figure": "charged", "name": "loads, case: kernel=100 gap=100: |charged - used|", "charged": 20.0, "used": 40.0}
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"rows": [row, charged]}))
    pictures = draw(results, tmp_path / "plots")
    assert set(pictures) == {"sharing-speed.svg", "sharing-charged.svg"}
    without, inside = bars(pictures["sharing-speed.svg"])
    assert abs(inside - 2 * without) < 0.2
    used, by_account = bars(pictures["sharing-charged.svg"])
    assert abs(used - 2 * by_account) < 0.2
