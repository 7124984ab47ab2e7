"""The flows that a worker knows, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath

from stepwell.core.errors import DefinitionError, UnknownFlow
from stepwell.flow.definitions import Flow, FlowLike, Step, StepLike
from stepwell.flow.signature import unstorable


class Registry:
    """Flows by name; two different flows, or two steps beside one flow, may not share a name."""

    def __init__(self, flows: Iterable[FlowLike] | FlowLike = ()) -> None:
        self._flows: dict[str, FlowLike] = {}
        self._steps: dict[tuple[str, str], StepLike] = {}
        if not isinstance(flows, Iterable):
            flows = [flows]
        for flow in flows:
            self.add(flow)

    def add(self, flow: FlowLike) -> None:
        """Register a flow and look at the steps of its module.

        Raises:
            DefinitionError: the name is taken by another flow, two steps of its module share one, or an annotation
                names a type that no JSON can become.
        """
        if isinstance(flow, Step):
            raise DefinitionError(f"{flow.name!r} is a step: await it in a function decorated with @flow and give that")
        if not isinstance(flow, Flow):
            raise DefinitionError(f"expected a function decorated with @flow, got {flow!r}")
        known = self._flows.get(flow.name)
        if known is not None and known is not flow:
            raise DefinitionError(
                f"two flows are named {flow.name!r} ({place_of(known.fn)} and {place_of(flow.fn)}):"
                " give one of them another name with @flow(name=...)"
            )
        flow.input.prepare()
        self._flows[flow.name] = flow
        for step in {id(v): v for v in flow.fn.__globals__.values() if isinstance(v, Step)}.values():
            self._add_step(flow, step)

    def _add_step(self, flow: FlowLike, step: StepLike) -> None:
        known = self._steps.setdefault((flow.fn.__module__, step.name), step)
        if known is not step:
            raise DefinitionError(
                f"two steps of {flow.fn.__module__} are named {step.name!r}"
                f" ({place_of(known.fn)} and {place_of(step.fn)}):"
                " give one of them another name with @step(name=...)"
            )
        problem = unstorable(step.result_annotation)
        if problem:
            raise DefinitionError(f"step {step.name} ({place_of(step.fn)}): its result can't be stored: {problem}")
        _ = step.result_decoder

    def running_max(self, name: str) -> int | None:
        """How many executions of that flow may run at once in a shard; None: any number."""
        flow = self._flows.get(name)
        return None if flow is None else flow.max_running

    def find(self, name: str) -> FlowLike | None:
        """The flow of that name, if it is registered."""
        return self._flows.get(name)

    def get(self, name: str) -> FlowLike:
        """The flow of that name.

        Raises:
            UnknownFlow: there is none; the message suggests a close name.
        """
        flow = self._flows.get(name)
        if flow is None:
            raise UnknownFlow(unknown_flow(name, self._flows))
        return flow

    def steps(self) -> list[StepLike]:
        """All steps that stand beside the flows."""
        return list(self._steps.values())

    def describe(self) -> dict[str, dict[str, object]]:
        """The flows by name, each with what `InputModel.offer` says, as workers publish them."""
        return {name: flow.input.offer() for name, flow in sorted(self._flows.items())}

    def __iter__(self) -> Iterator[FlowLike]:
        return iter(self._flows.values())

    def __len__(self) -> int:
        return len(self._flows)


def place_of(fn: Callable[..., object]) -> str:
    """Where a function is written: `line 12 of flows.py`; its module where that can't be told."""
    code = getattr(fn, "__code__", None)
    return f"in {fn.__module__}" if code is None else f"line {code.co_firstlineno} of {PurePath(code.co_filename).name}"


def unknown_flow(name: str, known: Iterable[str]) -> str:
    """The sentence about a flow name that nobody knows, with a suggestion."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names[:20]) or 'none'}"
    return f"no flow is named {name!r}{hint}"
