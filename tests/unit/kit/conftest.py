"""A stage on which actors are tried: once on a real scheduler thread, once under virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from stepwell.actors.kit.clock import SystemClock
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.kit.scheduler import ThreadScheduler, VirtualScheduler
from stepwell.actors.kit.supervision import ChildFailed

HANG_SECONDS = 50.0


class Puppet(PooledActor):
    """Does what its message says where that is callable, and notes any other on the stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def on_receive(self, message: object) -> object:
        if callable(message):
            return message(self)
        self.stage.note(self.name, message)
        return None


class Stage:
    """A scheduler, and a log of what happened that tests wait on."""

    def __init__(self, virtual: bool) -> None:
        self.log: list[tuple[object, ...]] = []
        self.failures: list[ChildFailed] = []
        self.crashes: list[tuple[str, BaseException, str]] = []
        self.lost: list[tuple[str, object]] = []
        self._changed = threading.Condition()
        self.virtual = virtual
        self.scheduler: ThreadScheduler | VirtualScheduler
        if virtual:
            self.scheduler = VirtualScheduler(on_crash=self.crash, on_dead_letter=self.lose)
        else:
            self.scheduler = ThreadScheduler(SystemClock(), on_crash=self.crash, on_dead_letter=self.lose)

    def note(self, *what: object) -> None:
        self._add(self.log, what)

    def crash(self, name: str, error: BaseException, text: str) -> None:
        self._add(self.crashes, (name, error, text))

    def lose(self, message: object, name: str) -> None:
        self._add(self.lost, (name, message))

    def fail(self, failure: ChildFailed) -> None:
        self._add(self.failures, failure)

    def _add(self, where: list, what: object) -> None:  # type: ignore[type-arg]
        with self._changed:
            where.append(what)
            self._changed.notify_all()

    def open(self) -> None:
        """Let the actors run; what was spawned and told before is in a known order."""
        if isinstance(self.scheduler, ThreadScheduler) and not self.scheduler.is_alive:
            self.scheduler.start()

    def until(self, predicate: Callable[[], object]) -> None:
        """Wait for it, without looking at a clock."""
        self.open()
        if isinstance(self.scheduler, VirtualScheduler):
            self.scheduler.run_until(predicate, limit_seconds=10.0)
            return
        with self._changed:
            assert self._changed.wait_for(lambda: bool(predicate()), HANG_SECONDS), "it did not happen"

    def settle(self, *refs: AnyRef) -> None:
        """Let these actors handle all that they were told up to now."""
        self.open()
        for ref in refs:
            ref.ask(lambda _actor: None, timeout=HANG_SECONDS)

    def spawn(
        self, actor_class: type[PooledActor] = Puppet, name: str = "puppet", supervisor: AnyRef | None = None
    ) -> AnyRef:
        return self.scheduler.spawn(actor_class, self, name=name, supervisor=supervisor)

    def stop(self) -> None:
        if isinstance(self.scheduler, VirtualScheduler):
            self.scheduler.stop()
        else:
            assert self.scheduler.stop(HANG_SECONDS), "the scheduler's thread does not end"


class Boss(Puppet):
    """A supervisor that keeps what it is told."""

    def on_receive(self, message: object) -> object:
        if isinstance(message, ChildFailed):
            self.stage.fail(message)
            return None
        return super().on_receive(message)


def _stage(virtual: bool) -> Iterator[Stage]:
    stage = Stage(virtual)
    yield stage
    stage.stop()


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.threads, id="thread"), pytest.param(True, id="virtual")])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The same test on both schedulers."""
    yield from _stage(request.param)


@pytest.fixture
def thread_stage() -> Iterator[Stage]:
    """For what only a real thread can show (mark the test `threads`)."""
    yield from _stage(virtual=False)


@pytest.fixture
def virtual_stage() -> Iterator[Stage]:
    """For what needs exact instants or a forced interleaving."""
    yield from _stage(virtual=True)


@pytest.fixture
def puppet_class() -> type[Puppet]:
    return Puppet


@pytest.fixture
def boss(stage: Stage) -> AnyRef:
    return stage.spawn(Boss, name="boss")
