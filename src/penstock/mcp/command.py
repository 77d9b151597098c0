"""`penstock mcp`: serves tools that only read to a client of the Model Context Protocol, on standard input and output.

The server, the role and the sources are those of the command line. No argument of a tool names another server, another
file or an SQL statement.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial, wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import __version__
from penstock.cli.options import SERVER, takes, warn_of_secrets
from penstock.cli.output import complete_commands, compose_json, compose_message, remember_target
from penstock.core.errors import PenstockError, TargetError, UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import Access, Types
from penstock.core.values.mode import Mode
from penstock.core.values.options import option_fields, pick
from penstock.core.words import visible_lines
from penstock.loading.files.allowed import AllowedSources

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from penstock.preflight.doctor import DoctorResult

# A client waits for a tool's answer, and may end the wait after a minute.
_LONGEST_S = 50

_INSTRUCTIONS = (
    "penstock loads files into PostgreSQL. These tools only read: they change nothing in the database or on disk. "
    "Begin with doctor. To act on an answer, show the user the command that its hint names."
)

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SOURCE",
        show_default=False,
        help="Files, folders and URLs of which loads may be planned, with what is in them (default: none).",
    ),
]


@takes((*SERVER, "ledger_schema"))
def mcp(sources: Sources = None, **options: Any) -> None:
    """Answer a language model's questions (Model Context Protocol).

    It reads requests from standard input, and writes answers to standard output. Its tools are doctor, plan, loads,
    rejects, watch, diagnose, temp_usage and storage_plan. All of them only read, with the server and the role that are
    named here. Needs pip install 'pg-penstock[mcp]'.
    """
    if find_spec("mcp") is None:
        raise UsageError("the Model Context Protocol needs its SDK", hint="Run pip install 'pg-penstock[mcp]'.")
    if "-" in (sources or ()):
        raise UsageError("standard input cannot be a source", hint="The client writes its requests there.")
    warn_of_secrets(options.get("to"), sources=sources or ())
    remember_target(options)
    tools = Tools(sources or [], options)
    _serve([getattr(tools, name) for name in TOOLS])


def _serve(tools: list[Callable[..., Mapping[str, object] | DataclassInstance]]) -> None:
    """Serve until the client closes standard input."""
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.tools import Tool
    from mcp_types import ToolAnnotations

    def answering(tool: Callable[..., Mapping[str, object] | DataclassInstance]) -> Callable[..., str]:
        @wraps(tool)
        def answer(**arguments: Any) -> str:
            try:
                return compose_json(tool(**arguments))
            except PenstockError as error:
                lines = compose_message(error.message, detail=error.detail, hint=error.hint)
                raise ToolError("\n".join(visible_lines(complete_commands(line)) for line in lines)) from error

        return answer

    def strict(tool: Tool) -> Tool:
        """Return a tool that refuses arguments of unknown names, which the SDK would drop."""
        model = tool.fn_metadata.arg_model
        model.model_config["extra"] = "forbid"
        model.model_rebuild(force=True)
        return tool.model_copy(update={"parameters": model.model_json_schema(by_alias=True)})

    annotations = ToolAnnotations(read_only_hint=True)
    served = [
        strict(Tool.from_function(answering(tool), annotations=annotations, structured_output=False)) for tool in tools
    ]
    MCPServer("penstock", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING", tools=served).run()


TOOLS = ("doctor", "plan", "loads", "rejects", "watch", "diagnose", "temp_usage", "storage_plan")


class Tools:
    """The tools, which are the methods that TOOLS names. The model reads their docstrings."""

    def __init__(self, sources: list[str], options: Mapping[str, Any]) -> None:
        self._allowed = AllowedSources(sources)
        self._options = dict(options)

    def doctor(self, table: str | None = None) -> dict[str, object]:
        """Show what the server is, what the role may do, and whether a load into a table could begin."""
        from penstock.preflight.command import as_object

        return as_object(self._examine(table, None, {}))

    def plan(
        self,
        source: str,
        table: str,
        create: bool = False,
        mode: Mode = "append",
        key: list[str] | None = None,
        types: Types = "text",
        dialect: dict[str, Any] | None = None,
    ) -> dict[str, object]:
        """Plan a load of a file, folder or URL into a table: dialect, columns, indexes, warnings. Nothing is loaded.

        `dialect` has options that a warning's hint names, such as {"delimiter": ";", "decimal_comma": "price"}.
        """
        from penstock.core.aws.credentials import AwsCredentials
        from penstock.loading.files.streams import SourceReader
        from penstock.preflight.command import as_object

        chosen: dict[str, Any] = {"create": create, "mode": mode, "types": types} | ({"key": key} if key else {})
        known = option_fields(DialectOptions)
        for name in dialect or {}:
            if name not in known:
                raise UsageError(f'"{name}" is no option of a dialect', hint=f"Use {', '.join(known)}.")
        chosen |= dialect or {}
        with SourceReader(credentials=AwsCredentials(), allowed=self._allowed) as reader:
            # A source that does not exist is an error, as one that is not allowed.
            reader.list([source])
        return as_object(self._examine(table, source, chosen))

    def loads(self, limit: int = 20, table: str | None = None) -> dict[str, object]:
        """List the newest loads that the database records: state, rows, rate, what failed."""
        from penstock.api.functions import loads
        from penstock.loading.views.outcome import load_object

        found = loads(limit=limit, into=table, **self._options)
        if table is not None and not found:
            raise TargetError(f'no load into table "{table}" is recorded', hint="Ask for loads without a table.")
        return {"loads": [load_object(each) for each in found]}

    def rejects(self, load_id: str = "latest") -> dict[str, object]:
        """Show why records of a load were rejected, by cause, with the first record of each."""
        from penstock.api.functions import rejects
        from penstock.loading.command.rejects import cause_object

        return {"causes": [cause_object(each) for each in rejects(load_id, **self._options)]}

    def watch(self, seconds: float = 10.0) -> dict[str, object]:
        """Sample the server for up to 50 seconds: what its sessions wait for, rates, what limits them, and remedies."""
        from penstock.api.connect import connect_to
        from penstock.diagnose.examination import Examination
        from penstock.watch.sampler import sample_on_clock
        from penstock.watch.view import View, as_object
        from penstock.watch.watching import open_sampler

        connect, for_s = connect_to(**pick(Access, self._options), allows_standby=True), _limit(seconds, least=1)
        with closing(connect), closing(open_sampler(connect, to=self._options.get("to"), interval_s=1.0)) as sampler:
            samples = [*sample_on_clock(sampler, interval=lambda: 1.0, stop=threading.Event(), for_s=for_s)]
        examination = Examination(sampler.header)
        for sample in samples:
            examination.see(sample)
        found = examination.conclude()
        return as_object(View.of(sampler.header, samples, found.risks)) | {"diagnoses": found.diagnoses}

    def diagnose(self) -> dict[str, object]:
        """Show what limited this user's newest load of more than two seconds, on any server, with remedies."""
        from penstock.diagnose.examination import examine
        from penstock.diagnose.load import judge_recording
        from penstock.watch.kept import newest_recording, recordings_folder
        from penstock.watch.recordings import read_recording

        recording = read_recording(newest_recording(recordings_folder(os.environ)))
        found = judge_recording(recording, examine(recording))
        header = recording.header
        return {
            "server": header.server,
            "database": header.database,
            "began": header.started_at,
            "diagnoses": found.diagnoses,
            "risks": found.risks,
        }

    def temp_usage(self, seconds: float = 10.0, top: int = 10) -> dict[str, object]:
        """Show which statements and databases write temporary files, and why, within up to 50 seconds."""
        from penstock.api.functions import temp_usage
        from penstock.temp.view import usage_object

        return usage_object(temp_usage(interval_s=_limit(seconds), top=top, **self._options))

    def storage_plan(self, volume: str | None = None) -> dict[str, object]:
        """Show which storage would carry the workload of the last hour (RDS) or of the newest recording (a volume).

        A volume is named as gp3:400GiB:12000:500; without one, the server is an instance of Amazon RDS.
        """
        from penstock.storage.command import make_report
        from penstock.storage.view import report_object

        to = None if volume else self._options.get("to")
        return report_object(make_report(None, to, None, volume, None, None, needs_use=True))

    def _examine(self, table: str | None, source: str | None, chosen: Mapping[str, Any]) -> DoctorResult:
        """Return what doctor finds. Raise TargetError if the table does not exist and is not to be created."""
        from penstock.api.functions import examine
        from penstock.loading.files.streams import SourceReader

        options = {**chosen, **self._options}
        sources = partial(SourceReader, allowed=self._allowed)
        found = examine(table, source or (), to=options.pop("to", None), options=options, sources=sources)
        inspected = found.inspection.table
        if inspected is not None and inspected.facts is None and not chosen.get("create"):
            raise TargetError(
                f'table "{inspected.asked}" does not exist', hint="Name a table that exists, or plan with create."
            )
        return found


def _limit(seconds: float, *, least: int = 0) -> float:
    if not least <= seconds <= _LONGEST_S:
        raise UsageError(f"invalid value {seconds} for seconds", hint=f"Use a number from {least} to {_LONGEST_S}.")
    return seconds
