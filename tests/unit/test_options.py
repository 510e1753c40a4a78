"""Every option: what is accepted, and that an error names the parameter, the value and what is accepted."""

import inspect
import logging
import math
import os
from pathlib import Path

import pytest

import loopwatch
from loopwatch import _env
from loopwatch._options import Settings, check_timeout, default, make_settings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("LOOPWATCH")]:
        monkeypatch.delenv(name)


def settings(**options):
    return make_settings("install", options)


def test_defaults():
    assert settings() == Settings(log=logging.getLogger("loopwatch"))
    assert settings() == settings(threshold=default(9.0), log=default(False))


@pytest.mark.parametrize("value", [0.001, 1, 3600, 0.25])
def test_threshold(value):
    assert settings(threshold=value).threshold == value


BAD = [
    ("threshold", 0.0009, ValueError),
    ("threshold", 3600.1, ValueError),
    ("threshold", math.nan, ValueError),
    ("threshold", -1, ValueError),
    ("threshold", 10**400, ValueError),
    ("threshold", True, TypeError),
    ("threshold", "0.1", TypeError),
    ("threshold", None, TypeError),
    ("on_stall", 3, TypeError),
    ("log", "loopwatch", TypeError),
    ("log", None, TypeError),
    ("hang_after", -0.1, ValueError),
    ("hang_after", math.nan, ValueError),
    ("hang_after", math.inf, ValueError),
    ("hang_after", "1", ValueError),
    ("hang_after", True, ValueError),
    ("pulse", "select", ValueError),
    ("pulse", None, ValueError),
    ("capture", "RAW", ValueError),
    ("capture", 1, ValueError),
    ("dump_to", True, TypeError),
    ("dump_to", 1.5, TypeError),
    ("dump_to", [], TypeError),
    ("dump_to", -1, OSError),
    ("dump_to", 10**6, OSError),
    ("dump_to", 10**30, OSError),
    ("own", "shop", TypeError),
    ("own", [3], TypeError),
    ("own", 3, TypeError),
    ("ignore", "shop:main", TypeError),
    ("ignore", [3], TypeError),
    ("redact", "x", TypeError),
    ("log_every", -1, ValueError),
    ("log_every", "60", TypeError),
    ("profile_hz", -1, ValueError),
    ("profile_hz", 0.001, ValueError),
    ("profile_hz", 1001, ValueError),
    ("profile_hz", math.nan, ValueError),
    ("profile_hz", True, TypeError),
    ("profile_hz", None, TypeError),
    ("profile_hz", "20", TypeError),
    ("status", None, TypeError),
    ("status", 1, TypeError),
    ("status", [], TypeError),
]


@pytest.mark.parametrize(("name", "value", "error"), BAD)
def test_bad_value_is_named(name, value, error):
    with pytest.raises(error) as caught:
        settings(**{name: value})
    assert caught.type is error
    message = str(caught.value)
    assert name in message
    assert repr(value) in message
    assert "must be" in message


def test_unknown_option():
    with pytest.raises(TypeError, match=r"Runner\(\) got an unexpected keyword argument 'treshold'"):
        make_settings("Runner", {"treshold": 1})


def test_closed_descriptor_is_refused():
    read, write = os.pipe()
    os.close(read)
    assert settings(dump_to=write).dump_to == write
    os.close(write)
    with pytest.raises(OSError, match=f"not {write}"):
        settings(dump_to=write)


def test_lists_become_tuples(tmp_path):
    def callback(stall):
        return stall

    made = settings(own=["shop", tmp_path], ignore={callback}, dump_to=tmp_path / "dump")
    assert made.own == ("shop", str(tmp_path))
    assert made.ignore == (callback,)
    assert made.dump_to == tmp_path / "dump"


def test_log_accepts_loggers_and_adapters():
    logger = logging.getLogger("somewhere")
    adapter = logging.LoggerAdapter(logger, {})
    assert settings(log=logger).log is logger
    assert settings(log=adapter).log is adapter
    assert settings(log=False).log is None


# --- environment ---

GOOD_ENVIRONMENT = [
    ("THRESHOLD", "0.25", "threshold", 0.25),
    ("LOG", "off", "log", None),
    ("HANG_AFTER", "none", "hang_after", None),
    ("HANG_AFTER", "3", "hang_after", 3.0),
    ("PULSE", "heartbeat", "pulse", "heartbeat"),
    ("CAPTURE", "GIL", "capture", "gil"),
    ("DUMP_TO", "0", "dump_to", False),
    ("DUMP_TO", "stderr", "dump_to", None),
    ("DUMP_TO", "/var/log/stalls", "dump_to", "/var/log/stalls"),
    ("OWN", "shop, /srv/lib", "own", ("shop", "/srv/lib")),
    ("IGNORE", "shop:*,boot:main", "ignore", ("shop:*", "boot:main")),
    ("LOG_EVERY", "5", "log_every", 5.0),
    ("PROFILE_HZ", "0", "profile_hz", 0.0),
    ("PROFILE_HZ", "50", "profile_hz", 50.0),
    ("STATUS", "1", "status", True),
    ("STATUS", "off", "status", False),
    ("STATUS", "/run/app/page", "status", "/run/app/page"),
]


@pytest.mark.parametrize(("variable", "text", "name", "value"), GOOD_ENVIRONMENT)
def test_environment_sets_a_default(monkeypatch, variable, text, name, value):
    monkeypatch.setenv(f"LOOPWATCH_{variable}", text)
    assert getattr(settings(), name) == value
    assert getattr(settings(**{name: default("anything")}), name) == value


def test_an_argument_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("LOOPWATCH_THRESHOLD", "0.5")
    assert settings(threshold=0.1).threshold == 0.1


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("THRESHOLD", "soon"),
        ("THRESHOLD", "0"),
        ("THRESHOLD", "nan"),
        ("LOG", "maybe"),
        ("HANG_AFTER", "-1"),
        ("PULSE", "fast"),
        ("CAPTURE", "x"),
        ("LOG_EVERY", "often"),
    ],
)
def test_bad_environment_names_the_variable(monkeypatch, variable, text):
    monkeypatch.setenv(f"LOOPWATCH_{variable}", text)
    with pytest.raises(ValueError, match=f"LOOPWATCH_{variable}") as caught:
        settings()
    assert text in str(caught.value)


def test_a_bad_variable_for_a_given_argument_is_still_an_error(monkeypatch):
    monkeypatch.setenv("LOOPWATCH_THRESHOLD", "soon")
    with pytest.raises(ValueError, match="LOOPWATCH_THRESHOLD"):
        settings(threshold=0.1)


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("LOOPWATCH_THRESHOLD", "")
    assert settings().threshold == 0.1


@pytest.mark.parametrize(
    ("text", "on"), [("", True), ("1", True), ("on", True), ("0", False), ("FALSE", False)]
)
def test_switch(monkeypatch, text, on):
    monkeypatch.setenv("LOOPWATCH", text)
    assert _env.enabled() is on


def test_bad_switch_names_the_variable(monkeypatch):
    monkeypatch.setenv("LOOPWATCH", "perhaps")
    with pytest.raises(ValueError, match="variable LOOPWATCH: must be 1 or 0, not 'perhaps'"):
        _env.enabled()


@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (math.nan, ValueError), ("5", TypeError)])
def test_timeout(value, error):
    assert check_timeout(5) == 5.0
    with pytest.raises(error, match="timeout"):
        check_timeout(value)


def test_a_path_object_of_one_part_is_a_path():
    assert settings(own=[Path("shop")]).own == (str(Path.cwd() / "shop"),)


def test_a_signature_shows_the_defaults_that_count_without_the_environment():
    parameters = inspect.signature(loopwatch.install).parameters
    for name in ("threshold", "log", "hang_after", "pulse", "capture", "dump_to", "own", "ignore", "status"):
        assert parameters[name].default == DEFAULTS[name]
        assert hash(parameters[name].default) == hash(DEFAULTS[name])


DEFAULTS = {
    "threshold": 0.1,
    "log": True,
    "hang_after": 1.0,
    "pulse": "auto",
    "capture": "auto",
    "dump_to": None,
    "own": (),
    "ignore": (),
    "status": False,
}


@pytest.mark.parametrize("path", ["a\0b", b"a\0b", Path("a\0b")])
@pytest.mark.parametrize("name", ["dump_to", "status"])
def test_a_path_with_a_null_character_is_an_os_error(name, path):
    with pytest.raises(OSError, match=name):
        settings(**{name: path})


def test_help_explains_each_option():
    first_words = {
        line.split(maxsplit=1)[0] for line in inspect.getdoc(loopwatch.install).splitlines() if line
    }
    assert inspect.signature(loopwatch.install).parameters.keys() <= first_words
