"""What is planted in a renderer, or in what a reader hands on, turns its target red."""

import pytest
from benchmarks.fuzz_readers import Harmful
from benchmarks.fuzz_targets import TARGETS

from benchmarks import fuzz_pages, fuzz_readers, fuzz_surroundings
from ci_bench.report.html.markup import Html, tag

ATTACK = b"<img src=x onerror=y>"


def test_hostile_texts_are_everywhere_but_in_our_own_words():
    hostile = fuzz_pages.poisoned(fuzz_pages.comparison(), ["<b>"], {})
    assert "<b>" in hostile.tool_version
    assert hostile.judgement.findings[0].rule == fuzz_pages.comparison().judgement.findings[0].rule


def test_markdown_that_links_or_is_too_long_is_a_finding(monkeypatch):
    monkeypatch.setattr(
        fuzz_pages, "render_report", lambda comparison: f"# {comparison.tool_version}\n"
    )
    with pytest.raises(Harmful, match="<h1>"):
        TARGETS["markdown"].feed(odd(b"@everybody"))
    monkeypatch.setattr(
        fuzz_pages, "render_comment", lambda comparison, marker, limit: "x" * (limit + 1)
    )
    with pytest.raises(Harmful, match="16001 units"):
        TARGETS["markdown"].feed(even(b"@everybody"))


def odd(text):
    """The report is for inputs with an odd check sum, the comment for the others."""
    return next(
        text + b"!" * number
        for number in range(99)
        if fuzz_pages.is_for_the_report(text + b"!" * number)
    )


def even(text):
    return next(
        text + b"!" * number
        for number in range(99)
        if not fuzz_pages.is_for_the_report(text + b"!" * number)
    )


@pytest.mark.parametrize("name", ["html", "trend page"])
@pytest.mark.parametrize(
    "attack", [ATTACK, b"</script><script>x()</script>", b"<!-- ", b"</title><p>"]
)
def test_a_text_that_is_not_escaped_is_a_finding(monkeypatch, name, attack):
    assert TARGETS[name].feed(
        attack
    )  # which also makes the harmless page, before anything is planted
    monkeypatch.setattr("ci_bench.report.html.markup._text", lambda text: text)
    with pytest.raises(Harmful):
        TARGETS[name].feed(attack)


@pytest.mark.parametrize("name", ["html", "trend page"])
def test_a_title_alone_that_is_not_escaped_is_a_finding(monkeypatch, name):
    assert TARGETS[name].feed(ATTACK)

    def careless(name, *children, **more):
        return (
            Html(f"<title>{children[0]}</title>")
            if name == "title"
            else tag(name, *children, **more)
        )

    monkeypatch.setattr("ci_bench.report.html.page.tag", careless)
    with pytest.raises(Harmful, match="onerror"):
        TARGETS[name].feed(ATTACK)


def test_an_attribute_or_a_link_of_a_stranger_is_a_finding(monkeypatch):
    assert TARGETS["html"].feed(ATTACK)
    monkeypatch.setattr(
        "ci_bench.report.html.report.identifier",
        lambda text: Html(f'<code title="{text}">x</code>'),
    )
    with pytest.raises(Harmful):
        TARGETS["html"].feed(b'" onload="x')
    monkeypatch.setattr("ci_bench.history.page.quote", lambda text: f"../../{text}")
    with pytest.raises(Harmful, match="a link leads to"):
        TARGETS["trend page"].feed(b"x")


def test_a_page_that_is_too_large_is_a_finding(monkeypatch):
    monkeypatch.setattr(fuzz_pages, "MOST_PAGE", 1000)
    with pytest.raises(Harmful, match="a page of"):
        TARGETS["html"].feed(b"x")


def test_an_issue_with_a_strangers_markup_is_a_finding(monkeypatch):
    assert TARGETS["issue"].feed(ATTACK)
    monkeypatch.setattr("ci_bench.history.alarms.plain", str)
    with pytest.raises(Harmful, match="closes something else"):  # an image has no end
        TARGETS["issue"].feed(ATTACK)
    with pytest.raises(Harmful, match="<b>"):
        TARGETS["issue"].feed(b"<b>x</b>")


def test_a_terminal_that_is_sent_commands_is_a_finding(monkeypatch):
    monkeypatch.setattr("ci_bench.report.terminal.clean", lambda text, cap=0: text)
    with pytest.raises(Harmful, match="terminal"):
        TARGETS["terminal and badge"].feed(b"\x1b[2J")


def test_a_badge_with_a_strangers_words_is_a_finding(monkeypatch):
    monkeypatch.setattr(
        fuzz_pages, "badge", lambda comparison: {"message": comparison.tool_version}
    )
    with pytest.raises(Harmful, match="the badge says"):
        TARGETS["terminal and badge"].feed(b"x")


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_that_falls_over_an_input_is_a_finding(monkeypatch, name):
    """The same for every target: an error of a bug is never taken for a refusal."""
    planted = PLANTED.get(name, PLANTED["format"] if name.startswith("format ") else None)
    assert planted is not None, f"plant a defect behind {name}"
    target = TARGETS[name]
    seeds = target.seeds()
    accepted = [
        target.feed(seed) for seed in seeds
    ]  # all of them: no cache is colder than after other tests
    assert accepted[0]
    monkeypatch.setattr(planted, fall_over)
    with pytest.raises(KeyError, match="planted"):
        [target.feed(seed) for seed in seeds]


def fall_over(*_, **__):
    raise KeyError("planted")


PLANTED = {
    "format": "ci_bench.formats.catalogue._checked",
    "config": "ci_bench.configuration.config._file_complaints",
    "accepted": "ci_bench.configuration.accepting._faults",
    "config of plugins": "ci_bench.configuration.config._with_suites",
    "losses of a training": "ci_bench.formats.training_steps.by_rank",
    "event files of a training": "ci_bench.formats.training_events._fields",
    "benchmarks": "ci_bench.suites.functions.grids._check",
    "repository": "ci_bench.starting.survey._import_names",
    "results": "ci_bench.records.documents._head",
    "comparison": "ci_bench.records.documents._head",
    "calibration": "ci_bench.records.documents._head",
    "history": "ci_bench.records.documents._head",
    "kind of a document": "ci_bench.records.documents._object",
    "store of histories": "ci_bench.history.store._digest",
    "history of github-action-benchmark": "ci_bench.formats.github_action_benchmark._entry",
    "artifact": "ci_bench.github.archive._check_entry",
    "GitHub's event": "ci_bench.github.context.json.loads",
    "GitHub's answer": "ci_bench.github.artifacts.Artifact.of",
    "GitHub's headers": "ci_bench.github.http.trouble_of",
    "worker's answers": "ci_bench.processes.resident.decode_answer",
    "run to resume": "ci_bench.runner.resuming._differences",
    "lock of a device": "ci_bench.host.lock._holder",
    "why there is no baseline": "ci_bench.commands.trusted.publishing.json.loads",
    "markdown": "ci_bench.report.markdown.plain",
    "html": "ci_bench.report.html.markup._child",
    "trend page": "ci_bench.report.html.markup._child",
    "issue": "ci_bench.history.alarms.plain",
    "terminal and badge": "ci_bench.report.terminal.clean",
}
"""Something that each target runs for at least one of its seeds, also where an earlier test left
its texts in a cache.
"""


def test_a_history_that_nobody_can_read_again_is_a_finding(monkeypatch):
    target = TARGETS["history of github-action-benchmark"]
    monkeypatch.setattr("ci_bench.formats.github_action_benchmark.case_id", str)
    with pytest.raises(Harmful, match="read again"):
        target.feed(target.seeds()[0].replace(b'"fib', b'"fib <x>').replace(b"fib", b"f b", 1))


def test_names_out_of_an_archive_are_a_finding(monkeypatch):
    monkeypatch.setattr(fuzz_readers, "read_members", lambda content, contents: {"../x": b""})
    with pytest.raises(Harmful, match="out of the archive"):
        TARGETS["artifact"].feed(b"PK")


def test_a_compaction_that_loses_runs_is_a_finding(monkeypatch):
    monkeypatch.setattr(
        fuzz_readers, "compact", lambda store: [path.unlink() for path in store.path.glob("*/*")]
    )
    with pytest.raises(Harmful, match="compacting lost runs"):
        TARGETS["store of histories"].feed(TARGETS["store of histories"].seeds()[0])


def test_a_strangers_words_in_the_message_of_a_lock_are_a_finding(monkeypatch):
    monkeypatch.setattr("ci_bench.host.lock._holder", lambda _: "\x1b[2J")
    with pytest.raises(Harmful, match="message"):
        TARGETS["lock of a device"].feed(b"x")


def test_a_refusal_as_long_as_the_document_is_a_finding(monkeypatch):
    monkeypatch.setattr(fuzz_readers, "MOST_MESSAGE", 10)
    with pytest.raises(Harmful, match="a refusal of"):
        TARGETS["results"].feed(b"{}")


def test_a_pause_beyond_all_patience_is_a_finding(monkeypatch):
    with pytest.raises(Harmful, match="pause"):
        fuzz_surroundings._pass(float("inf"))
