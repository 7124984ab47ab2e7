"""Processes that run flows: `worker.Worker` in a program of one's own; `parent.Parent` with its shards: `stepwell run`.

It imports nothing: each process loads only what it is made of.
"""
