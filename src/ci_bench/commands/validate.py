"""`ci-bench validate`: checks documents against their schemas, and whether other tools' files can be read."""

import sys
from pathlib import Path

from ci_bench.command_line.settings import Validating
from ci_bench.commands.output import say
from ci_bench.commands.sides import read_content
from ci_bench.configuration.accepting import load_accepted
from ci_bench.configuration.config import load_config
from ci_bench.errors import BadDocument, BadInput, CiBenchError, ExitCode
from ci_bench.formats.catalogue import decode, read
from ci_bench.formats.series import Unreadable
from ci_bench.records import documents
from ci_bench.suites.registry import plugin_forms

_BEGIN_BYTES = 1000
_SCHEMA, _OWN_BENCHMARK = b'"schema_version"', b'"measurements"'


def validate(settings: Validating) -> int:
    """Check documents against their schemas, and other files by reading them."""
    code = ExitCode.OK
    for path in settings.files:
        try:
            if form := _form_of_tool(path):
                say(f"{path}: a valid file of {form}\n")
                continue
            kind = documents.document_kind(path)
            match kind:
                case documents.Kind.CONFIG:
                    load_config(path, more_suites=plugin_forms(), tree=(settings.here, settings.here / "src"))
                case documents.Kind.ACCEPTED:
                    load_accepted(path)
                case documents.Kind.RESULTS:
                    documents.read_results(path)
                case documents.Kind.COMPARISON:
                    documents.read_comparison(path)
                case documents.Kind.CALIBRATION:
                    documents.read_calibration(path)
                case documents.Kind.HISTORY:
                    documents.read_history(path)
            say(f"{path}: a valid {kind} document\n")
        except CiBenchError as error:
            sys.stderr.write(f"ci-bench: {error}\n")
            code = error.exit_code
    return int(code)


def _form_of_tool(path: Path) -> str:
    """The format of a benchmark tool's file; empty for documents of ci-bench, broken ones too. Raises `BadInput` for others."""
    if not path.is_file():
        return ""
    content = read_content(path)
    try:
        documents.document_kind(path)
    except BadDocument:
        if _SCHEMA in content[:_BEGIN_BYTES] and _OWN_BENCHMARK not in content[:_BEGIN_BYTES]:
            return ""
    else:
        return ""
    try:
        return read(decode(content)).form
    except Unreadable as error:
        raise BadInput(f"{path}: {error}") from error
