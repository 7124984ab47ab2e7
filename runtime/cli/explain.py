"""`explain`: what the retry policies of a flow's steps come to, and the exact delays of one step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stepwell.cli.session import (
    NAMESPACE,
    Data,
    Json,
    Line,
    Namespace,
    Redis,
    Verbose,
    columns,
    open_client,
    resolved,
    session,
)
from stepwell.cli.timeline import delay as shown_delay
from stepwell.cli.timeline import duration
from stepwell.core.errors import UnknownExecution, UsageError
from stepwell.core.names import check_execution_id

if TYPE_CHECKING:
    from stepwell.core.retry import Retry
    from stepwell.flow.definitions import FlowLike, StepLike

__all__ = ["Delay", "Exact", "add_to", "delays", "explain", "total"]

ROWS_MAX: Final = 50


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(
        epilog="Examples:\n\nstepwell explain flows.py\n\nstepwell explain checkout --from flows.py\n\n"
        "stepwell explain flows.py:checkout --id A1 --path charge"
    )(explain)


@dataclass(frozen=True)
class Delay:
    """The least and most delay, in seconds, after each of the attempts `first` to `last`."""

    first: int
    last: int
    least: float
    most: float


@dataclass(frozen=True)
class Exact:
    """The delays, in seconds, between the attempts of one step of one execution."""

    id: str
    path: str
    step: str
    token: str
    max_attempts: int
    delays: list[float]


def delays(policy: Retry) -> Iterator[Delay]:
    """The delays between the attempts of a budget, equal ones together."""
    last = policy.max_attempts - 1
    failure = 1
    while failure <= last:
        least, most = policy.bounds(failure)
        level = not policy.base or policy.factor == 1 or policy.floor(failure) >= policy.cap
        end = last if level else failure
        yield Delay(failure, end, least, most)
        failure = end + 1


def total(policy: Retry) -> tuple[float, float]:
    """Least and most seconds that a step waits in all before it fails for good."""
    parts = [(delay.last - delay.first + 1, delay) for delay in delays(policy)]
    return sum(n * delay.least for n, delay in parts), sum(n * delay.most for n, delay in parts)


def explain(
    context: typer.Context,
    flow: Annotated[
        str, typer.Argument(metavar="FLOW", help="FILE_OR_MODULE:NAME, or FILE.py for all of it, or NAME with --from.")
    ],
    source: Annotated[
        str | None, typer.Option("--from", "-f", metavar="FILE_OR_MODULE", help="Where the flow is.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The exact delays of this execution's step at --path.")
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="The step's path, such as charge or gather#2.0/ship.")
    ] = None,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Explain the retries of a flow's steps: the least and most delay after each attempt.

    With --id and --path: the exact delays of that step of that execution, before or after they happen.
    """
    own = session(context)
    if (id is None) != (path is None):
        raise UsageError("give --id and --path together: the exact delays belong to one step of one execution")
    flows = _find(flow, source)
    if id is not None and path is not None:
        exact = _exact(flows, id, path, redis, data, namespace)
        own.answer_json(asdict(exact)) if own.json else own.answer_lines(_exact_lines(exact))
        return
    if own.json:
        own.answer_json([_as_data(each) for each in flows])
        return
    for number, each in enumerate(flows):
        own.answer_lines([[]] if number else [])
        own.answer_lines(_lines(each, own.width))


def _find(flow: str, source: str | None) -> list[FlowLike]:
    from stepwell.flow.loader import load

    name: str | None = flow
    if source is None:
        source, colon, after = flow.rpartition(":")
        name = after
        if not colon:
            if not flow.endswith(".py"):
                raise UsageError(f"say where the flow is: stepwell explain {flow} --from FILE_OR_MODULE")
            source, name = flow, None
    registry = load([source])
    return list(registry) if name is None else [registry.get(name)]


def _steps(flow: FlowLike) -> list[StepLike]:
    from stepwell.flow.source import steps_of

    return steps_of(flow)


def _lines(flow: FlowLike, width: int) -> Iterator[Line]:
    yield [(f"flow {flow.name}", "good")]
    steps = _steps(flow)
    if not steps:
        yield [("no step could be found in its source", "dim")]
    for step in steps:
        yield []
        yield [(_policy(step), "")]
        rows = [["  after attempt", "least", "most"]]
        rows += [
            [f"  {d.first}" if d.first == d.last else f"  {d.first} to {d.last}", _seconds(d.least), _seconds(d.most)]
            for d in delays(step.retry)
        ]
        left_out = len(rows) - 1 - ROWS_MAX
        if left_out > 0:
            rows[ROWS_MAX + 1 :] = [[f"  ({left_out} more)", "", ""]]
        least, most = total(step.retry)
        rows.append(["  in all", _seconds(least), _seconds(most)])
        yield from columns(rows, width) if step.retry.max_attempts > 1 else []


def _policy(step: StepLike) -> str:
    retry = step.retry
    limit = f", each at most {_seconds(step.timeout)}" if step.timeout is not None else ""
    if retry.max_attempts == 1:
        return f"step {step.name}: one attempt{limit}"
    return (
        f"step {step.name}: {retry.max_attempts} attempts{limit}; delays from {_seconds(retry.base)}, times"
        f" {retry.factor:g} up to {_seconds(retry.cap)}, and up to {retry.jitter:.0%} more"
    )


def _as_data(flow: FlowLike) -> dict[str, object]:
    return {"flow": flow.name, "steps": [_step_data(step) for step in _steps(flow)]}


def _step_data(step: StepLike) -> dict[str, object]:
    retry = step.retry
    least, most = total(retry)
    names = ("max_attempts", "base", "factor", "cap", "jitter", "retry_after_max")
    return {
        "step": step.name,
        "timeout": step.timeout,
        **{name: getattr(retry, name) for name in names},
        "delays": [asdict(delay) for delay in delays(retry)],
        "total": {"least": least, "most": most},
    }


def _exact(
    flows: list[FlowLike], execution_id: str, path: str, redis: str | None, data: Path | None, namespace: str
) -> Exact:
    name = path.rpartition("/")[2].partition("#")[0]
    found = {id(step): step for flow in flows for step in _steps(flow) if step.name == name}
    if not found:
        known = sorted({step.name for flow in flows for step in _steps(flow)})
        raise UsageError(f"no step is named {name!r} in that flow; it has {', '.join(known) or 'none'}: check --path")
    step = next(iter(found.values()))
    token = _token(check_execution_id(execution_id), path, redis, data, namespace)
    # Rows have whole milliseconds, and so does what is said of them.
    exact = [math.ceil(seconds * 1000) / 1000 for seconds in step.retry.schedule(token)]
    return Exact(execution_id, path, step.name, token, step.retry.max_attempts, exact)


def _token(execution_id: str, path: str, redis: str | None, data: Path | None, namespace: str) -> str:
    """The step's token: as it was recorded, or as it will be."""
    from stepwell.core.token import step_token, token_seed

    with open_client(redis, data, namespace, new=True) as client:
        try:
            for step in client.describe(execution_id)["steps"]:
                if step["path"] == path:
                    return str(step["token"])
        except UnknownExecution:
            pass  # its tokens are known before it is started
        return step_token(token_seed(execution_id, 0, _secret(redis, data, namespace)), path)


def _secret(redis: str | None, data: Path | None, namespace: str) -> bytes:
    import secrets

    from stepwell.client.address import Place
    from stepwell.store.connect import connect
    from stepwell.store.embedded import read_secret
    from stepwell.store.namespace import open_namespace

    address = resolved(redis, data)
    place = Place(address)
    try:
        kept = read_secret(address.data_dir) if address.data_dir is not None else None
        with connect(place.url) as client:
            made = open_namespace(client, namespace, None, kept, new_secret=lambda: secrets.token_bytes(32))
            return made.secret
    finally:
        place.leave()


def _exact_lines(exact: Exact) -> Iterator[Line]:
    yield [(f"step {exact.path} of {exact.id}, token {exact.token}", "good")]
    rows = [["after attempt", "delay", "in all"]]
    passed = 0.0
    for number, delay in enumerate(exact.delays, 1):
        passed += delay
        rows.append([str(number), shown_delay(round(delay * 1000)), duration(passed * 1000)])
    yield from columns(rows, 80)
    if len(exact.delays) < exact.max_attempts - 1:
        yield [(f"and so on, up to attempt {exact.max_attempts}", "dim")]


def _seconds(seconds: float) -> str:
    return duration(seconds * 1000) if seconds else "0 s"
