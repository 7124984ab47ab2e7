"""Load for Restate: plain HTTP/1.1 to its ingress on connections that are kept, cheaper than an HTTP client."""

import asyncio
import json
import os
import time
import urllib.error
import urllib.request

import peerkit

PORT = int(os.environ["PEER_INGRESS"])


def register():
    """Tell the server where the service is; the worker may not listen yet."""
    body = json.dumps({"uri": f"http://127.0.0.1:{os.environ['PEER_SERVICE_PORT']}"}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{os.environ['PEER_ADMIN']}/deployments",
        body,
        {"Content-Type": "application/json"},
        method="POST",
    )
    for attempt in range(50):
        try:
            urllib.request.urlopen(request, timeout=30).read()
            return
        except urllib.error.URLError:
            if attempt == 49:
                raise
            time.sleep(0.2)


async def post(link, path, body):
    """One request on a connection that stays open."""
    reader, writer = link
    raw = json.dumps(body).encode()
    lines = ("Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(raw)}")
    writer.write("\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + raw)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    start = head.find(b"content-length:")
    if start >= 0:
        answer = await reader.readexactly(int(head[start + 15 : head.index(b"\r\n", start)]))
    else:
        answer = await chunks(reader)
    if int(head.split()[1]) >= 300:
        raise RuntimeError(f"{path}: {answer[:200]}")


async def chunks(reader):
    """A chunked body."""
    whole = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).strip(), 16)
        piece = await reader.readexactly(size + 2)
        if size == 0:
            return whole
        whole += piece[:-2]


async def many(numbers, in_flight, path):
    """So many connections, each with one request at a time."""
    rest = iter(numbers)

    async def worker():
        link = await asyncio.open_connection("127.0.0.1", PORT)
        for n in rest:
            await post(link, path, n)
        link[1].close()

    await asyncio.gather(*[worker() for _ in range(min(in_flight, len(numbers)))])


async def main():
    """Answer the runner."""
    register()
    link = await asyncio.open_connection("127.0.0.1", PORT)
    await peerkit.async_serve(
        lambda numbers, in_flight: many(numbers, in_flight, "/Bench/five"),
        lambda n: post(link, "/Bench/five", n),
        lambda numbers: many(numbers, 20, "/Bench/five_slow/send"),
    )


asyncio.run(main())
