"""`@flow` and `@step`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, get_args, overload

from stepwell.core import codec
from stepwell.core.durations import seconds
from stepwell.core.errors import DefinitionError
from stepwell.core.names import check_name
from stepwell.core.retry import Retry
from stepwell.flow.operations import StepCall, driving
from stepwell.flow.reference import Recipe, recipe_of
from stepwell.flow.signature import InputModel, hints_of

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_RETRY = Retry()
Isolation: TypeAlias = Literal["thread", "process"]


class Step(Generic[P, R]):
    """A durable unit of work.

    Inside a flow, calling it gives an operation to await; elsewhere the call is a plain function call.

    Attributes:
        name: its name in paths, rows and metrics.
        retry: its policy.
        timeout: seconds that one attempt may take; None: no limit.
        is_async: whether its body is an `async def`.
        max_running: bodies of it that run at once in a shard; None: no limit of its own.
        isolation: `process` if its body runs in a process of its own, else `thread`.
    """

    def __init__(
        self,
        fn: Callable[P, Any],
        name: str | None,
        retry: Retry,
        timeout: float | timedelta | None,
        max_running: int | None = None,
        isolation: Isolation = "thread",
    ) -> None:
        if not callable(fn) or inspect.isclass(fn):
            raise DefinitionError(f"@step decorates functions, got {fn!r}")
        self.fn = fn
        self.name = check_name("step", name if name is not None else getattr(fn, "__name__", ""))
        if not isinstance(retry, Retry):
            raise DefinitionError(f"step {self.name}: expected retry to be a Retry(...), got {retry!r}")
        self.retry = retry
        self.timeout = (
            None
            if timeout is None
            else seconds(timeout, f"the timeout of step {self.name}", above=True, error=DefinitionError)
        )
        self.max_running = _max_running(f"step {self.name}", max_running)
        if isolation not in get_args(Isolation):
            raise DefinitionError(
                f"step {self.name}: expected isolation to be 'thread' or 'process', got {isolation!r}"
            )
        self.isolation: Isolation = isolation
        self.is_async = inspect.iscoroutinefunction(fn)
        self._result = f"the result of step {self.name}"  # for messages
        self._decoder: Any = None
        self._hints: dict[str, object] | None = None  # where the function's module can't be asked
        update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        state = driving.driver
        if state is None:
            outside: Awaitable[R] = self.fn(*args, **kwargs)
            return outside
        call: StepCall[R] = StepCall(self, args, kwargs)
        state.called(call)
        return call

    def __repr__(self) -> str:
        return f"<step {self.name}>"

    def __reduce__(self) -> Recipe:
        """How another process of this code comes to the same step."""
        return recipe_of(self)

    def with_options(
        self,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        max_running: int | None = None,
        isolation: Isolation | None = None,
    ) -> Step[P, R]:
        """A step with the same body and other options; what is left out stays as it is.

        Beside one flow, two steps may not share a name: give the new one its own.
        """
        return Step(
            self.fn,
            self.name if name is None else name,
            self.retry if retry is None else retry,
            self.timeout if timeout is None else timeout,
            self.max_running if max_running is None else max_running,
            self.isolation if isolation is None else isolation,
        )

    @property
    def hints(self) -> dict[str, object]:
        """The annotations of its function, those that can be resolved by now (they may name later definitions)."""
        return hints_of(self.fn) if self._hints is None else self._hints

    @hints.setter
    def hints(self, resolved: dict[str, object]) -> None:
        self._hints = resolved

    def encode_result(self, value: object) -> bytes:
        """The JSON of a result, checked to come back as the step is annotated.

        Raises:
            PayloadError: not encodable, too large, or it does not fit the annotation.
        """
        raw = codec.encode(value, self._result)
        decoder = self.result_decoder
        if decoder is not _PLAIN:  # whatever was encoded is plain JSON
            codec.decode(raw, decoder, self._result)
        return raw

    def decode_result(self, raw: Any) -> Any:
        """The value that a recorded result stands for.

        Raises:
            PayloadError: it does not fit the annotation.
        """
        return codec.decode(raw, self.result_decoder, self._result)

    @property
    def result_annotation(self) -> object:
        """The annotated result; `Any` where there is none or it can't be resolved."""
        return self.hints.get("return", Any)

    @property
    def result_decoder(self) -> Any:
        """Decoder for the annotated result, made at first use (annotations may name later definitions)."""
        if self._decoder is None:
            annotation = self.result_annotation
            try:
                self._decoder = _PLAIN if annotation is Any else codec.decoder(annotation)
            except TypeError as error:
                raise DefinitionError(
                    f"step {self.name}: its annotation -> {annotation} can't be stored: {error}"
                ) from error
        return self._decoder


_PLAIN = codec.decoder(Any)


class Flow(Generic[P, R]):
    """A registered definition: an `async def` made of steps and other operations.

    Attributes:
        name: what `start` takes.
        input: checks and decodes the execution's input, a JSON object of the function's keyword arguments.
        max_running: executions of it that run at once in a shard; more stay queued. None: no limit of its own.
    """

    def __init__(
        self, fn: Callable[P, Coroutine[Any, Any, R]], name: str | None, max_running: int | None = None
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise DefinitionError(f"@flow decorates `async def` functions, got {getattr(fn, '__qualname__', fn)!r}")
        self.fn = fn
        self.name = check_name("flow", name if name is not None else fn.__name__)
        self.max_running = _max_running(f"flow {self.name}", max_running)
        self.input = InputModel(self.name, fn)
        update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the flow's function itself: inside another flow its operations become part of that flow."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<flow {self.name}>"


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry = DEFAULT_RETRY,
    timeout: float | timedelta | None = None,
    max_running: int | None = None,
    isolation: Isolation = "thread",
) -> _StepDecorator: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry = DEFAULT_RETRY,
    timeout: float | timedelta | None = None,
    max_running: int | None = None,
    isolation: Isolation = "thread",
) -> Any:
    """Make a function (`def` or `async def`) a durable step; with or without arguments.

    Args:
        name: name of the step; the function's by default.
        retry: policy for failed attempts.
        timeout: seconds (or a timedelta) for one attempt. An async body is cancelled then and fails with
            `StepTimeout`; a sync one can't be stopped: it is waited for, and if it returns, its result counts. One
            in a process is killed, with all that it has started.
        max_running: bodies of this step that run at once in each shard; further attempts wait their turn, and only
            their own executions notice.
        isolation: `thread`: the body runs inside the worker's process (a `def` on a thread, an `async def` on an
            event loop); `process`: in a process of its own, which may crash or hang without harm to others.

    Raises:
        DefinitionError, InvalidName: the declaration is wrong.
    """
    if fn is not None:
        return Step(fn, None, retry, timeout)
    return _StepDecorator(name, retry, timeout, max_running, isolation)


class _StepDecorator:
    """`@step(...)`: overloads keep the result's type for `async def` and `def`."""

    def __init__(
        self,
        name: str | None,
        retry: Retry,
        timeout: float | timedelta | None,
        max_running: int | None,
        isolation: Isolation,
    ) -> None:
        self._options = (name, retry, timeout, max_running, isolation)

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        return Step(fn, *self._options)


@overload
def flow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Flow[P, R]: ...
@overload
def flow(
    *, name: str | None = None, max_running: int | None = None
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Flow[P, R]]: ...
def flow(fn: Callable[..., Any] | None = None, /, *, name: str | None = None, max_running: int | None = None) -> Any:
    """Make an `async def` a flow; with or without arguments.

    Args:
        name: name of the flow; the function's by default.
        max_running: executions of this flow that run steps at once in each shard; more stay queued.

    Raises:
        DefinitionError, InvalidName: the declaration is wrong.
    """
    if fn is not None:
        return Flow(fn, None)

    def decorate(decorated: Callable[..., Any]) -> Flow[..., Any]:
        return Flow(decorated, name, max_running)

    return decorate


def _max_running(whose: str, most: int | None) -> int | None:
    if most is not None and (type(most) is not int or most < 1):
        raise DefinitionError(f"{whose}: expected max_running to be a whole number >= 1, got {most!r}")
    return most


FlowLike = Flow[..., Any]
StepLike = Step[..., Any]
