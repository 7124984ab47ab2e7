"""A Redis Cluster of the test's own: a few masters on free ports of this machine, each with its share of the slots."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from system.support.processes import HANG_SECONDS
from system.support.programs import KEEPS_ALL_WHEN_KILLED, Program, wait

from benchmarks.ports import free_port
from stepwell.store.cluster import masters_of
from stepwell.store.connect import connect
from stepwell.store.embedded import server_binary
from stepwell.store.slots import SLOTS, slot_of

# A busy machine answers late: no node takes another for dead, or itself for cut off, unless a test means it.
PATIENCE_MS = 30_000
MOVE_MS = int(HANG_SECONDS * 1000)


def binary() -> Path:
    """The server program of the test run, else Debian's, else the one that Stepwell embeds."""
    return Path(os.environ.get("STEPWELL_TEST_REDIS_SERVER") or shutil.which("redis-server") or server_binary())


class Node:
    """One server of a cluster; it may be killed and started again, with its data."""

    def __init__(self, folder: Path, number: int, settings: dict[str, str]) -> None:
        self.port, self.bus = free_port(), free_port()
        self.folder = folder / f"node-{number}"
        self.folder.mkdir()
        self._settings = settings
        self.tls_port = 0
        self.program: Program | None = None

    def offer_tls(self) -> None:
        """Let it listen for TLS too, on `tls_port`; its settings name the certificates."""
        self.tls_port = free_port()
        self._settings = {**self._settings, "tls-port": str(self.tls_port)}

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {
            "port": str(self.port),
            "cluster-port": str(self.bus),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            **KEEPS_ALL_WHEN_KILLED,
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(PATIENCE_MS),
            "cluster-require-full-coverage": "no",
            **self._settings,
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self.program = Program([binary(), *words], self.folder / "log")
        with self.admin() as client:
            wait(client.ping, f"the node on port {self.port} answers", self.program)

    def admin(self) -> redis.Redis:
        """A client of this node alone."""
        return redis.Redis(
            port=self.port,
            retry=Retry(NoBackoff(), 0),
            password=self._settings.get("requirepass"),
            socket_timeout=HANG_SECONDS,
            socket_connect_timeout=HANG_SECONDS,
        )

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        assert self.program is not None
        self.program.process.send_signal(number)

    def kill(self) -> None:
        """`kill -9`, and wait for its end."""
        if self.program is not None:
            self.program.kill()


class Cluster:
    """So many masters, without replicas. `stop` ends them."""

    def __init__(self, folder: Path, masters: int = 3, **settings: str) -> None:
        self.nodes = [
            Node(folder, number, {k.replace("_", "-"): v for k, v in settings.items()}) for number in range(masters)
        ]
        self._password = settings.get("requirepass")

    @property
    def url(self) -> str:
        """The URL of one of the nodes."""
        return f"redis://{f':{self._password}@' if self._password else ''}127.0.0.1:{self.nodes[0].port}"

    @property
    def urls(self) -> str:
        """A URL with all nodes."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis://{f':{self._password}@' if self._password else ''}{hosts}"

    def start(self) -> Cluster:
        """Start the nodes, deal out the slots and wait until all agree."""
        try:
            for node in self.nodes:
                node.start()
            self._join()
        except BaseException:
            self.stop()
            raise
        return self

    def _join(self) -> None:
        share = -(-SLOTS // len(self.nodes))
        for number, node in enumerate(self.nodes):
            with node.admin() as admin:
                admin.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                slots = range(number * share, min(SLOTS, (number + 1) * share))
                admin.execute_command("CLUSTER", "ADDSLOTS", *slots)
                first = self.nodes[0]
                if node is not first:
                    admin.execute_command("CLUSTER", "MEET", "127.0.0.1", first.tls_port or first.port, first.bus)
        self.wait_until_whole()

    def restart(self, node: Node) -> None:
        """Start a node that was killed, and wait until the cluster serves all its slots again."""
        node.start()
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Return when every node sees all slots served."""
        programs = [node.program for node in self.nodes if node.program]
        for node in self.nodes:
            with node.admin() as admin:
                sees = f"the node on port {node.port} sees the whole cluster"
                wait(lambda admin=admin: self._whole(admin), sees, *programs)

    def _whole(self, admin: redis.Redis) -> bool:
        info = admin.execute_command("CLUSTER", "INFO")
        said = info if isinstance(info, dict) else dict(line.split(":") for line in info.decode().split())
        return said["cluster_state"] == "ok" and int(said["cluster_slots_ok"]) == SLOTS

    def admin(self) -> RedisCluster:
        """A client of the whole cluster."""
        return RedisCluster(host="127.0.0.1", port=self.nodes[0].port, password=self._password)

    def owner(self, key: str) -> Node:
        """The node that serves a key."""
        with connect(self.url) as client:
            found = masters_of(client).learn().master_of(slot_of(key))
        return next(node for node in self.nodes if found is not None and node.port == found[1])

    def move(self, key: str, chunk: int = 3) -> None:
        """Migrate the slot of a key to the next node, a few keys at a time, as `redis-cli --cluster reshard` does."""
        slot, source = slot_of(key), self.owner(key)
        target = self.nodes[(self.nodes.index(source) + 1) % len(self.nodes)]
        with source.admin() as here, target.admin() as there:
            from_id, to_id = (each.execute_command("CLUSTER", "MYID") for each in (here, there))
            there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", from_id)
            here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", to_id)
            while keys := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, chunk):
                here.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, MOVE_MS, "KEYS", *keys)
            for each in (there, here):
                each.execute_command("CLUSTER", "SETSLOT", slot, "NODE", to_id)
        # A next move before all have heard of this one could leave nodes that point at each other for ever.
        wait(lambda: len(set(map(self._view, self.nodes))) == 1, "all nodes agree")

    def _view(self, node: Node) -> tuple[tuple[bytes, ...], ...]:
        """What a node knows: of each node its id, its epoch and its slots."""
        with node.admin() as admin:
            fields = [line.split() for line in admin.execute_command("CLUSTER", "NODES").splitlines()]
        return tuple(sorted((words[0], words[6], *words[8:]) for words in fields))

    def stop(self) -> None:
        """Kill all nodes."""
        for node in self.nodes:
            node.kill()
