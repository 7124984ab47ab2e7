"""LangGraph: a graph of five nodes with a checkpointer, run within the application."""

import asyncio
import os
import sys
from typing import TypedDict

import peerkit
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    """What nodes hand on."""

    i: int
    n: int


def noop(k):
    """A node that does nothing."""

    async def node(state):
        return {"i": k}

    return node


def slow(k):
    """A node that takes its time."""

    async def node(state):
        await peerkit.async_slow_step(state["n"], k)
        return {"i": k}

    return node


def compiled(make, saver):
    """Five of them in a row."""
    graph = StateGraph(State)
    before = START
    for k in range(1, 6):
        graph.add_node(f"s{k}", make(k))
        graph.add_edge(before, f"s{k}")
        before = f"s{k}"
    graph.add_edge(before, END)
    return graph.compile(checkpointer=saver)


async def load(saver):
    """Answer the runner."""
    graph = compiled(noop, saver)

    async def one(n):
        await graph.ainvoke({"i": 0, "n": n}, {"configurable": {"thread_id": f"t{os.getpid()}-{n}"}})

    await peerkit.async_serve(lambda numbers, width: peerkit.keep_in_flight(numbers, width, one), one)


async def recover(saver):
    """Run 200 flows; started again, invoke what has not ended. LangGraph itself does not look for it."""
    again = os.path.exists(os.environ["PEER_JOURNAL"] + ".again")
    open(os.environ["PEER_JOURNAL"] + ".again", "w").close()
    graph = compiled(slow, saver)
    peerkit.ready()

    async def one(n):
        config = {"configurable": {"thread_id": f"w{n}"}}
        if again:
            state = await graph.aget_state(config)
            if state.values and not state.next:
                return
            await graph.ainvoke(None if state.values else {"i": 0, "n": n}, config)
        else:
            await graph.ainvoke({"i": 0, "n": n}, config)

    await peerkit.keep_in_flight(range(int(os.environ["PEER_FLOWS"])), 50, one)
    await asyncio.Event().wait()


async def main():
    """`load` or `recover`."""
    async with AsyncSqliteSaver.from_conn_string(os.environ["PEER_FILE"]) as saver:
        await saver.setup()
        await (load if sys.argv[1] == "load" else recover)(saver)


asyncio.run(main())
