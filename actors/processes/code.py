"""How the code of a step gets to its process: by the name of its module where there is one, else by value.

This is the only place that pickles, and it pickles code only: data goes as JSON.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from stepwell.core.errors import DefinitionError
from stepwell.core.messages import message_of
from stepwell.flow.definitions import Step, StepLike


@dataclass(frozen=True, slots=True)
class StepCode:
    """A step as bytes; `number` stands for it afterwards."""

    number: int
    name: str
    pickled: bytes


class Codes:
    """The code of each step that was sent, made once."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._by_step: WeakKeyDictionary[StepLike, StepCode] = WeakKeyDictionary()

    def of(self, step: StepLike) -> StepCode:
        """The step's code.

        Raises:
            DefinitionError: it can't be sent; the message says what holds it.
        """
        with self._lock:
            known = self._by_step.get(step)
            if known is None:
                known = self._by_step[step] = StepCode(next(self._numbers), step.name, dump(step))
            return known


def dump(step: StepLike) -> bytes:
    """The step as bytes. Raises DefinitionError."""
    from stepwell.actors.processes.by_value import dumps

    try:
        pickled = dumps(step)
    except Exception as error:  # objects that the function refers to have code of their own for this
        raise DefinitionError(
            f"step {step.name} can't run in a process of its own: its function is not at the top level of a module that"
            " can be imported, and what it refers to can't be sent there"
            f" ({type(error).__name__}: {message_of(error, 300)}); move it, and what it needs, to a module"
        ) from error
    return pickled


def load(pickled: bytes) -> StepLike:
    """The step again. Raises whatever the import of its module raises."""
    step: object = pickle.loads(pickled)
    if not isinstance(step, Step):
        raise TypeError(f"expected a step, found {type(step).__name__}: its module gives another one in each process")
    return step
