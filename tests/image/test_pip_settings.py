"""The machine's pip settings reach the throw-away base, in a form that a container understands."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import pip_settings


def test_settings_of_the_environment_win_over_files():
    listed = (
        ":env:.timeout='180'\nglobal.index-url='https://one.example/simple'\nglobal.timeout='15'\n"
    )
    assert pip_settings.parse(listed) == {
        "index-url": "https://one.example/simple",
        "timeout": "180",
    }


def test_folders_are_linked_and_addresses_stay(tmp_path):
    wheels, served = tmp_path / "my%20wheels", tmp_path / "served"
    wheels.mkdir()
    served.mkdir()
    found = list(pip_settings.linked(f"{wheels} https://wheels.example/ /not/there", served))
    assert found == [("0", str(wheels)), ("", "https://wheels.example/")]
    assert (served / "0").resolve() == wheels


def test_addresses_of_files_are_left_out():
    settings = {
        "index-url": "https://one.example/simple",
        "extra-index-url": "file:///a https://two.example/s",
        "cert": "/mine.pem",
    }
    text = pip_settings.render(settings, ["http://127.0.0.1:1/0/"])
    assert "file:" not in text
    assert "/mine.pem" not in text
    assert "extra-index-url = https://two.example/s\n" in text
    assert f"cert = {pip_settings.BUNDLE}\n" in text
    assert "find-links = http://127.0.0.1:1/0/\n" in text


def test_a_machine_without_settings_gives_an_empty_file():
    assert pip_settings.render({}, []) == "[global]\n"
