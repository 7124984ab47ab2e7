"""A fleet without processes: handles that note what they are told, and time that is put forward."""

from __future__ import annotations

from stepwell.metrics.instruments import COMMITS
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals
from stepwell.metrics.usage import Usage
from stepwell.metrics.worker import WorkerMetrics
from stepwell.worker import control as c
from stepwell.worker.fleet import Fleet
from stepwell.worker.slots import Slot


def pulse(**changes: object) -> c.Pulse:
    """What a shard that is well says of itself, with some parts changed."""
    made = {"silent": 0.1, "ready": True, "standing_by": False, "problem": ""}
    return c.Pulse(**{**made, **changes})  # type: ignore[arg-type]


class Process:
    """A process of a shard, made of notes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.told: list[c.ToShard] = []
        self.said: list[c.ToParent] = []
        self.nonsense = False
        self.deaf = False
        self.how = ""
        self.buried = False

    @property
    def waitables(self) -> tuple[int, ...]:
        return ()

    def send(self, message: c.ToShard) -> bool:
        if not self.deaf:
            self.told.append(message)
        return not self.deaf

    def receive(self) -> list[c.ToParent]:
        if self.nonsense:
            raise ValueError("no message")
        said, self.said = self.said, []
        return said

    def ended(self) -> bool:
        return bool(self.how)

    def kill(self) -> None:
        self.how = self.how or "killed by SIGKILL"

    def bury(self) -> str:
        assert self.how, "it lives"
        self.buried = True
        return self.how


class Scene:
    """The fleet, all that it did, and its clock."""

    def __init__(self, shards: int = 2) -> None:
        self.now = 1000.0
        self.processes: list[Process] = []
        self.busy: dict[int, float] = {}
        self.examinations: list[tuple[int, int]] = []
        self.troubles = 0
        self.full = False
        self.sheetless = False
        self.totals = Totals()
        own = Sheet.in_memory()
        self.totals.attach(-1, own.source)
        self.usages: dict[int, Usage] = {}
        metrics = WorkerMetrics(own, self.usages.get)
        self._refresh = metrics.refresh
        self.sheets: list[Sheet] = []
        self.slots = tuple(Slot(index, f"w/{index}") for index in range(shards))
        self.fleet = Fleet(self.slots, self, self.totals, metrics, lambda: self.now)

    # What a fleet asks of its aide.

    def spawn(self, slot: Slot) -> Process:
        if self.full:
            raise OSError(11, "no more processes")
        self.processes.append(Process(100 + len(self.processes)))
        self.sheets.append(Sheet.in_memory())
        if not self.sheetless:
            self.totals.attach(slot.index, self.sheets[-1].source)
        return self.processes[-1]

    def busy_seconds(self, slot: Slot) -> float:
        return self.busy.get(slot.index, 0.0)

    def examine(self, slot: Slot) -> None:
        self.examinations.append((slot.index, slot.life))

    def in_trouble(self) -> None:
        self.troubles += 1

    # What tests do.

    def process(self, index: int) -> Process:
        """The living process of a shard."""
        handle = self.slots[index].handle
        assert isinstance(handle, Process)
        return handle

    def say(self, index: int, *messages: c.ToParent) -> None:
        """A shard speaks and is heard."""
        self.process(index).said += messages
        self.fleet.hear(self.slots[index])

    def start(self) -> None:
        """Start all shards; all come to run."""
        self.fleet.start()
        for slot in self.slots:
            self.comes_up(slot.index)

    def comes_up(self, index: int) -> None:
        """A process that was spawned comes to run."""
        self.say(index, c.Hello(f"h,b,{index},1"), c.Loaded(("f",)), c.Started(pulse()))

    def commits(self, index: int) -> None:
        """Redis has acknowledged a commit of a shard."""
        self.sheets[self.processes.index(self.process(index))].count(COMMITS, "ok").inc()

    def dies(self, index: int, how: str = "killed by SIGSEGV", named: bool = False) -> None:
        """A process ends, and its box is read."""
        self.falls(index, how)
        self.fleet.examined(index, self.slots[index].life, named)

    def falls(self, index: int, how: str = "killed by SIGSEGV") -> None:
        """A process ends; its box is not read yet."""
        self.process(index).how = how
        self.fleet.look(self.slots[index])

    def later(self, seconds: float) -> None:
        """Time passes, with a look twice a second; shards that live say so."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            for slot in self.slots:
                if slot.handle is not None and slot.state == "running":
                    self.say(slot.index, slot.pulse or pulse())
            self.fleet.tick()

    def metric(self, name: str, **labels: str) -> float | None:
        """A sample's value."""
        self._refresh()
        samples = samples_of(self.totals.take())
        return next((number for sample, of, number in samples if (sample, of) == (name, labels)), None)
