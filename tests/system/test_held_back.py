"""What a `kill -9` of a server loses while its disk is slow, held against what we tell of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system.support.servers import Server
from system.support.written import written

from stepwell.store.check import check_server
from stepwell.store.guarantees import Facts, undone

# A disk that hangs for who waits for it: of a server that is the thread that writes out, not the one that answers. From
# then on its clock stands still, so that the two seconds for which writes are held back never end.
SLOW_DISK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
static volatile int hangs;
static int slow(void) {
    if (syscall(SYS_gettid) == getpid()) return 0;
    hangs = 1;
    close(creat("hangs", 0600));
    for (;;) pause();
}
int fsync(int fd) { return slow(); }
int fdatasync(int fd) { return slow(); }
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static struct timeval last;
    if (!hangs) syscall(SYS_gettimeofday, &last, 0);
    *now = last;
    return 0;
}
"""


@pytest.fixture
def slow_disk(tmp_path: Path) -> Path:
    """A library that makes the disk of who loads it slow."""
    compiler = shutil.which("gcc")
    if compiler is None and not os.environ.get("CI"):
        pytest.skip("no gcc here, to build a slow disk with")
    assert compiler, "CI has gcc"
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_DISK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.parametrize(
    ("policy", "kept", "told"), [("everysec", False, "up to two seconds"), ("no", True, "nothing")]
)
def test_what_a_server_with_a_slow_disk_loses_when_it_is_killed_is_what_we_tell(
    policy: str,
    kept: bool,
    told: str,
    processes: Any,
    tmp_path: Path,
    slow_disk: Path,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(processes, tmp_path / "server")
    with monkeypatch.context() as patched:
        patched.setenv("LD_PRELOAD", str(slow_disk))
        server.launch(appendfsync=policy)
    server.wait()
    with server.admin() as admin:
        admin.set("first", 1)
        if not kept:
            eventually((tmp_path / "server" / "hangs").exists, "an fsync hangs")
        [sentence] = [each for each in undone(Facts(check_server(admin))) if each.startswith("kill -9")]
        assert told in sentence
        assert ("or up to two seconds" in sentence) is not kept
        admin.set("last", 1)
        assert written(admin) is kept
    server.kill()
    server.launch(appendfsync=policy)
    server.wait()
    with server.admin() as admin:
        assert bool(admin.exists("last")) is kept
        assert admin.exists("first")
