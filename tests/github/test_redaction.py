"""What must not be said is not said, and what may be said stays readable."""

import logging

import pytest

from ci_bench.github.server import quiet_http_logs, redacted

SIGNED = "https://storage.example/a.zip?sig=abc%2Fdef&se=2030-01-01"
TEXTS = {
    "a signed address": (f"GET {SIGNED} failed", "GET https://storage.example/a.zip?*** failed"),
    "in quotes": (f"url: '{SIGNED}'", "url: 'https://storage.example/a.zip?***'"),
    "a path": (
        "Max retries exceeded with url: /a.zip?sig=abc (Caused by x)",
        "Max retries exceeded with url: /a.zip?*** (Caused by x)",
    ),
    "a password": ("http://user:hunter2@proxy.example:3128/", "http://***@proxy.example:3128/"),
    "a secret": ("token ghs_x is bad", "token *** is bad"),
    "nothing": ("Really? Yes, #7 of octo-org/octo-repo", "Really? Yes, #7 of octo-org/octo-repo"),
}


@pytest.mark.parametrize(("text", "clean"), TEXTS.values(), ids=TEXTS)
def test_what_is_left_out_of_a_password_or_address(text, clean):
    assert redacted(text, ("ghs_x", "")) == clean


def test_the_http_librarys_log_has_no_queries(caplog):
    caplog.set_level(logging.DEBUG)
    quiet_http_logs()
    quiet_http_logs()
    logging.getLogger("urllib3.connectionpool").debug(
        '%s "%s %s"', "https://storage.example:443", "GET", "/a.zip?sig=abc"
    )
    assert caplog.messages == ['https://storage.example:443 "GET /a.zip?***"']
