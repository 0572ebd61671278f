"""Whether what a stage sent may enter the results: the document's own rules, put to one row.

A plugin's mistake stays with its case; the rest of the results stays readable.
"""

from dataclasses import replace

from ci_bench.errors import BadDocument
from ci_bench.records import documents
from ci_bench.records.case import CaseResult
from ci_bench.records.results import Environment, Results, Run, RunState, Source

_SOUND = Results(
    tool_version="0",
    run=Run(id="row", started_at="2000-01-01T00:00:00Z", state=RunState.PARTIAL, config_digest="0", device="cpu"),
    source=Source(),
    environment=Environment(identity={}, condition={}),
    cases=(),
)
SHOWN = 5


def refuse_row(row: CaseResult) -> str:
    """Why a results document with this row could not be read again; empty if it could."""
    try:
        raw = documents.to_json(replace(_SOUND, cases=(row,)))
        faults = [str(fault) for fault in documents.validate(raw, documents.Kind.RESULTS)]
    except BadDocument as error:
        faults = [str(error)]
    if not faults:
        return ""
    more = f"\nand {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "the suite sent what no results document can hold:\n" + "\n".join(faults[:SHOWN]) + more
