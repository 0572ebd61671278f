"""`ci-bench validate`: check documents against their schemas, and read other tools' files."""

import sys

from ci_bench.command_line.settings import Validating
from ci_bench.commands.output import say
from ci_bench.configuration.accepting import load_accepted
from ci_bench.configuration.config import load_config
from ci_bench.errors import CiBenchError, ExitCode
from ci_bench.formats.detecting import form_of_tool
from ci_bench.records import documents
from ci_bench.suites.registry import plugin_forms


def validate(settings: Validating) -> int:
    """Check documents against their schemas, and other files by reading them."""
    code = ExitCode.OK
    for path in settings.files:
        try:
            if form := form_of_tool(path):
                say(f"{path}: a valid file of {form}\n")
                continue
            kind = documents.document_kind(path)
            match kind:
                case documents.Kind.CONFIG:
                    load_config(
                        path,
                        more_suites=plugin_forms(),
                        tree=(settings.here, settings.here / "src"),
                    )
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
