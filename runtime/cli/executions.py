"""`start`, `result`, `retry`, `cancel`, `signal`: commands that change executions or wait for them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepwell.cli.choosing import (
    Agreed,
    BackingOff,
    Choice,
    DryRun,
    Filter,
    OfAttributes,
    OfError,
    OfFlow,
    OfStatus,
    OfStep,
    Since,
    SomeIds,
    Until,
)
from stepwell.cli.commanding import command, tell
from stepwell.cli.durations import Seconds
from stepwell.cli.session import NAMESPACE, Data, Json, Namespace, Redis, Session, Verbose, open_client, session
from stepwell.core.advice import to_do
from stepwell.core.errors import UsageError
from stepwell.core.status import ERROR, PARKED, STATUSES, TERMINAL
from stepwell.flow.tracing import adopt

if TYPE_CHECKING:
    from stepwell.client import Client

__all__ = [
    "ExecutionId",
    "add_to",
    "cancel",
    "read_attributes",
    "read_json",
    "result",
    "retry",
    "signal",
    "start",
]

ExecutionId = Annotated[str, typer.Argument(metavar="ID", help="The execution's id.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Wait no longer than this; then exit with 2.",
        parser=Seconds(else_="; leave it out to wait without limit"),
    ),
]
Attr = Annotated[
    list[str] | None,
    typer.Option("--attr", metavar="NAME=VALUE", help="An attribute by which it is found; may be given several times."),
]
UNFINISHED = [each for each in STATUSES if each not in TERMINAL]
_BIGGEST_FILE = 64 * 1024 * 1024


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(
        epilog='Examples:\n\nstepwell start checkout --input \'{"order": "A1"}\' --id A1\n\n'
        "stepwell start checkout --input @order.json --wait --timeout 60\n\n"
        "stepwell start checkout --attr customer=c7 --attr plan=pro"
    )(start)
    app.command(epilog="Example:\n\nstepwell result A1 --timeout 60")(result)
    app.command(
        epilog="Examples:\n\nstepwell retry A1\n\nstepwell retry --flow checkout --dry-run\n\n"
        "stepwell retry --error ConnectionError --since '2h ago'\n\nstepwell retry --status parked --yes\n\n"
        "stepwell retry --backing-off --flow checkout --step charge --dry-run"
    )(retry)
    app.command(
        epilog="Examples:\n\nstepwell cancel A1 A2\n\nstepwell cancel --flow checkout --status waiting\n\n"
        "stepwell cancel --flow checkout --backing-off --dry-run"
    )(cancel)
    app.command(epilog='Examples:\n\nstepwell signal A1 approval --payload \'{"by": "Ada"}\'\n\nstepwell signal A1 go')(
        signal
    )


def start(
    context: typer.Context,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="Name of the flow.")],
    input: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="JSON|@FILE",
            help="The flow's keyword arguments as a JSON object; @FILE reads it from a file, @- from stdin.",
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Id of the execution; the same start again finds the same execution."),
    ] = None,
    attr: Attr = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the result.")] = False,
    timeout: Timeout = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Don't ask living workers whether they know the flow and its input.")
    ] = False,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Start an execution and print its id; with --wait, wait for it and print its result."""
    own = session(context)
    given = None if input is None else read_json("--input", input)
    if given is not None and not isinstance(given, dict):
        raise UsageError(f'--input is no JSON object of the flow\'s arguments, such as \'{{"order": "A1"}}\': {input}')
    if timeout is not None and not wait:
        raise UsageError("--timeout says how long --wait may take: give both or none")
    adopt(os.environ)
    with open_client(redis, data, namespace, new=True) as client:
        execution_id = client.start(flow, given, id, attributes=read_attributes(attr), unchecked=unchecked)
        idle = client.why_idle()
        if idle:
            own.remark(f"execution {execution_id} is queued; {idle} (one that is just starting takes it, too)")
        if not wait:
            own.answer_json({"id": execution_id}) if own.json else own.answer(execution_id)
            return
        if not own.json and id is None:
            own.remark(f"execution {execution_id}")
        try:
            value = client.result(execution_id, timeout)
        except KeyboardInterrupt:
            own.remark(f"the execution goes on: stepwell result {execution_id}")
            raise
        _show_result(own, execution_id, value)


def result(
    context: typer.Context,
    id: ExecutionId,
    timeout: Timeout = None,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Wait for an execution's end and print its result as JSON."""
    own = session(context)
    with open_client(redis, data, namespace) as client:
        if timeout is None:
            _warn_of_waiting_in_vain(own, client, id)
        _show_result(own, id, client.result(id, timeout))


def retry(
    context: typer.Context,
    ids: SomeIds = None,
    status: OfStatus = None,
    flow: OfFlow = None,
    backing_off: BackingOff = False,
    step: OfStep = None,
    error: OfError = None,
    attr: OfAttributes = None,
    since: Since = None,
    until: Until = None,
    yes: Agreed = False,
    dry_run: DryRun = False,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Bring failed executions back with the same idempotency keys, un-park parked ones, or end backoffs now."""
    of = Filter(status, flow, error, read_attributes(attr), since, until, backing_off, step)
    choice = Choice(ids or [], of, [ERROR])
    with open_client(redis, data, namespace) as client:
        command(session(context), client, "retry", choice, yes=yes, dry_run=dry_run)


def cancel(
    context: typer.Context,
    ids: SomeIds = None,
    status: OfStatus = None,
    flow: OfFlow = None,
    backing_off: BackingOff = False,
    step: OfStep = None,
    error: OfError = None,
    attr: OfAttributes = None,
    since: Since = None,
    until: Until = None,
    yes: Agreed = False,
    dry_run: DryRun = False,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Cancel executions, once the attempts that run have ended."""
    of = Filter(status, flow, error, read_attributes(attr), since, until, backing_off, step)
    choice = Choice(ids or [], of, UNFINISHED)
    with open_client(redis, data, namespace) as client:
        command(session(context), client, "cancel", choice, yes=yes, dry_run=dry_run)


def signal(
    context: typer.Context,
    id: ExecutionId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal's name, as in wait_for(NAME).")],
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="JSON|@FILE", help="What wait_for(NAME) returns; null by default."),
    ] = None,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Send a signal to an execution, for its `await wait_for(NAME)`."""
    value = None if payload is None else read_json("--payload", payload)
    with open_client(redis, data, namespace) as client:
        tell(session(context), "signal", id, client.signal(id, name, value))


def read_attributes(given: list[str] | None) -> dict[str, str] | None:
    """What `--attr` options say. Raises UsageError for one without a `=`, or a name that is given twice."""
    found: dict[str, str] = {}
    for each in given or ():
        name, sign, value = each.partition("=")
        if not sign or name in found:
            raise UsageError(f"--attr takes NAME=VALUE, each name once, got {name!r:.60}{'' if sign else ' alone'}")
        found[name] = value
    return found or None


def read_json(option: str, text: str) -> object:
    """The JSON value of an option: written out, or in the file that `@FILE` names. Raises UsageError."""
    where = option
    if text.startswith("@"):
        where = f"{option} {text}"
        text = _read_file(option, text[1:])
    try:
        value: object = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where} is not JSON ({error}): quote it for your shell, or use {option} @FILE") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON that can be stored: {error or 'it is nested too deeply'}") from error
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _read_file(option: str, name: str) -> str:
    try:
        raw = sys.stdin.buffer.read(_BIGGEST_FILE) if name == "-" else Path(name).read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(f"the file that {option} @{name} names can't be read: {reason}: check its path") from error
    except ValueError as error:
        raise UsageError(f"the file that {option} @{name} names is not UTF-8 text: save it as UTF-8 JSON") from error


def _warn_of_waiting_in_vain(own: Session, client: Client, execution_id: str) -> None:
    """Say what has to be done before an end can come."""
    view = client.describe(execution_id)
    status, error = view["status"], view["error"]
    if status == PARKED and error is not None:
        own.remark(
            f"execution {execution_id} is parked ({error['type']}: {error['message']});"
            f" to do: {to_do(execution_id, status, error, view['flow'])}"
        )
    idle = "" if status in TERMINAL else client.why_idle()
    if idle:
        own.remark(f"execution {execution_id} is {status}; {idle}")


def _show_result(own: Session, execution_id: str, value: object) -> None:
    if own.json:
        own.answer_json({"id": execution_id, "result": value})
    else:
        own.answer_json(value)
