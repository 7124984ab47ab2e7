"""LangGraph: a graph of five nodes with a checkpointer, run within the application."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from typing import TypedDict

import peerkit
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

    width = int(os.environ["PEER_IN_FLIGHT"])
    await peerkit.async_serve(lambda numbers, _: peerkit.keep_in_flight(numbers, width, one), one)


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


@asynccontextmanager
async def checkpointer():
    """In Postgres by a pool of connections, or in a file of SQLite."""
    if "PEER_DSN" in os.environ:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        sizes = {"min_size": 4, "max_size": 20, "timeout": 120}
        async with AsyncConnectionPool(os.environ["PEER_DSN"], kwargs=settings, **sizes) as pool:
            yield AsyncPostgresSaver(pool)
    else:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(os.environ["PEER_FILE"]) as saver:
            yield saver


async def main():
    """`load` or `recover`."""
    async with checkpointer() as saver:
        await saver.setup()
        await (load if sys.argv[1] == "load" else recover)(saver)


asyncio.run(main())
