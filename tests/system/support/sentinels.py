"""A primary, a replica and three Sentinels of the test's own: they fail over when the primary dies, or when asked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from system.support.cluster import binary
from system.support.programs import KEEPS_ALL_WHEN_KILLED, Program, wait

from benchmarks.ports import free_port

NAME = "main"
# A busy machine answers late: no server is taken for dead unless it is. One that a test has killed needs no patience.
DOWN_AFTER_MS = 60_000
DEAD_AFTER_MS = 500


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate that all of them show, its key, and who has signed it."""

    certificate: Path
    key: Path
    ca: Path

    @property
    def settings(self) -> dict[str, str]:
        """For a server's configuration: nobody speaks plainly, and no client needs a certificate."""
        return {
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-ca-cert-file": str(self.ca),
            "tls-auth-clients": "no",
            "tls-replication": "yes",
        }


def client_of(port: int, password: str, tls: Tls | None) -> redis.Redis:
    """A client of one server or Sentinel."""
    retry = Retry(NoBackoff(), 0)
    if tls is None:
        return redis.Redis("127.0.0.1", port, retry=retry, password=password or None)
    return redis.Redis("127.0.0.1", port, retry=retry, password=password or None, ssl=True, ssl_ca_certs=str(tls.ca))


class Member:
    """One data server; started again it is a replica of whoever is the primary by then."""

    def __init__(self, folder: Path, password: str, tls: Tls | None) -> None:
        self.port = free_port()
        self._tls = tls
        self._folder = folder
        self._password = password
        self.program: Program | None = None
        folder.mkdir()

    def start(self, primary: int | None = None) -> None:
        """Start it and wait until it answers."""
        settings = {"port": self.port, "bind": "127.0.0.1", "dir": self._folder, "save": "", **KEEPS_ALL_WHEN_KILLED}
        settings |= {"repl-diskless-sync-delay": 0, "repl-diskless-load": "on-empty-db"}
        if self._password:
            settings |= {"requirepass": self._password, "masterauth": self._password}
        if self._tls:
            settings |= {"port": 0, "tls-port": self.port, **self._tls.settings}
        if primary is not None:
            settings["replicaof"] = f"127.0.0.1 {primary}"
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        self.program = Program([binary(), *words], self._folder / "log")
        with self.admin() as client:
            wait(client.ping, f"the server on port {self.port} answers", self.program)

    def admin(self) -> redis.Redis:
        """A client of this server."""
        return client_of(self.port, self._password, self._tls)

    def kill(self) -> None:
        """`kill -9`, and wait for its end."""
        if self.program is not None:
            self.program.kill()


class Watched:
    """The servers and who watches them. `stop` ends them all."""

    def __init__(self, folder: Path, password: str = "", sentinel_password: str = "", tls: Tls | None = None) -> None:
        self.members = [Member(folder / f"server-{number}", password, tls) for number in range(2)]
        self._tls = tls
        self._password = password
        self._sentinel_password = sentinel_password
        self._folders = [folder / f"sentinel-{number}" for number in range(3)]
        self._ports = [free_port() for _ in self._folders]
        self._sentinels: list[Program] = []

    @property
    def url(self) -> str:
        """The URL with all Sentinels."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        own = [f"sentinel_password={self._sentinel_password}"] if self._sentinel_password else []
        own += [f"ssl_ca_certs={self._tls.ca}"] if self._tls else []
        scheme = "rediss" if self._tls else "redis"
        return f"{scheme}+sentinel://{f':{self._password}@' if self._password else ''}{hosts}/{NAME}?{'&'.join(own)}"

    def start(self) -> Watched:
        """Start all and wait until the Sentinels agree and the replica is in step."""
        try:
            primary, replica = self.members
            primary.start()
            replica.start(primary.port)
            for folder, port in zip(self._folders, self._ports, strict=True):
                self._start_sentinel(folder, port, primary.port)
            self._let_them_be_late()
            for port in self._ports:
                sees = f"the Sentinel on port {port} sees the others"
                wait(lambda port=port: self._sees_all(port), sees, *self._sentinels)
            self._wait_until_in_step()
        except BaseException:
            self.stop()
            raise
        return self

    def _let_them_be_late(self) -> None:
        """A Sentinel that could not run for 2 s does nothing for 30 s, unless told otherwise."""
        for port in self._ports:
            with self.sentinel(port) as client:
                wait(client.ping, f"the Sentinel on port {port} answers", *self._sentinels)
                with suppress(redis.ResponseError):  # before 7.0 it can't be told
                    client.execute_command("SENTINEL", "DEBUG", "tilt-trigger", DOWN_AFTER_MS)

    def _start_sentinel(self, folder: Path, port: int, primary: int) -> None:
        folder.mkdir()
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"sentinel monitor {NAME} 127.0.0.1 {primary} 2",
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {NAME} 10000",
        ]
        if self._password:
            lines.append(f"sentinel auth-pass {NAME} {self._password}")
        if self._sentinel_password:
            lines += [f"requirepass {self._sentinel_password}", f"sentinel sentinel-pass {self._sentinel_password}"]
        if self._tls:
            settings = {"port": "0", "tls-port": str(port), **self._tls.settings}
            lines = [f"{name} {value}" for name, value in settings.items()] + lines[1:]
        conf = folder / "sentinel.conf"
        conf.write_text("\n".join(lines) + "\n")
        self._sentinels.append(Program([binary(), conf, "--sentinel"], folder / "log"))

    def sentinel(self, port: int | None = None) -> redis.Redis:
        """A client of a Sentinel."""
        return client_of(port or self._ports[0], self._sentinel_password, self._tls)

    def _wait_until_in_step(self) -> None:
        def in_step() -> bool:
            with self.primary.admin() as admin:
                return bool(admin.info("replication").get("slave0", {}).get("state") == "online")

        wait(in_step, "the replica is in step", *(member.program for member in self.members if member.program))

    def _sees_all(self, port: int) -> bool:
        with self.sentinel(port) as client:
            state = client.sentinel_masters()[NAME]
        return bool(state["num-other-sentinels"] == 2 and state["num-slaves"] == 1 and not state["is_sdown"])

    @property
    def primary(self) -> Member:
        """Who is the primary, as the first Sentinel says."""
        return self._primary_of(self._ports[0])

    def _primary_of(self, sentinel: int) -> Member:
        with self.sentinel(sentinel) as client:
            _, port = client.sentinel_get_master_addr_by_name(NAME)
        return next(member for member in self.members if member.port == port)

    def lose_primary(self) -> Member:
        """`kill -9` the primary, and wait until the other server has taken its place; the one that was killed."""
        former = self.primary
        former.kill()
        self._take_for_dead_after(DEAD_AFTER_MS)
        wait(lambda: self._switched(former), "the other server is the primary", *self._sentinels)
        self._take_for_dead_after(DOWN_AFTER_MS)  # the new one lives, however late it answers
        return former

    def _take_for_dead_after(self, ms: int) -> None:
        for port in self._ports:
            with self.sentinel(port) as client:
                client.execute_command("SENTINEL", "SET", NAME, "down-after-milliseconds", ms)

    def _switched(self, former: Member) -> bool:
        """Whether all of them say so: it is up to chance which one is asked."""
        if any(self._primary_of(port) is former for port in self._ports):
            return False
        with self.primary.admin() as admin:
            return admin.role()[0] in (b"master", "master")

    def fail_over(self) -> Member:
        """Ask for a failover and wait for its end; the new primary.

        Until the former one follows it, that one accepts writes, which are lost then.
        """
        former = self.primary

        def over() -> bool:
            self._ask_for_failover(former)
            return self._switched(former)

        wait(over, "the other server is the primary", *self._sentinels)
        self._wait_until_in_step()
        return self.primary

    def _ask_for_failover(self, former: Member) -> None:
        """Unless one goes on, or is over. A Sentinel gives one up that takes 10 s, and forgets it."""
        with self.sentinel() as client:
            state = client.sentinel_masters()[NAME]
            if state["port"] == former.port and "failover_in_progress" not in state["flags"]:
                client.execute_command("SENTINEL", "FAILOVER", NAME)

    def stop(self) -> None:
        """Kill all."""
        for sentinel in self._sentinels:
            sentinel.kill()
        for member in self.members:
            member.kill()
