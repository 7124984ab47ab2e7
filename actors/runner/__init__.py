"""The StepRunner runs step bodies: async ones on an event loop of its own thread, sync ones on a bounded pool of
threads, isolated ones in processes of their own.

An execution whose actor is rebuilt while a body runs gets that body's outcome: the attempt is adopted, not begun
a second time; the outcome of one that ended meanwhile is told again. A stale attempt (its actor lost the
partition) is waited for before the next one starts.
"""

from stepwell.actors.runner.order import StepOrder
from stepwell.actors.runner.runner import StepRunner

__all__ = ["StepOrder", "StepRunner"]
