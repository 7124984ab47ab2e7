"""Certificates of the test's own, made with openssl: an authority, and what it has signed."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    """Signs certificates; whoever trusts `ca` trusts them."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                      "-keyout", self._key, "-out", self.ca, "-days", "2", "-subj", f"/CN={name}")  # fmt: skip

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """A certificate for these hosts (`DNS:localhost`, `IP:127.0.0.1`), and its key."""
        certificate, key, request = (self._folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(hosts)}\n" if hosts else "basicConstraints=CA:FALSE\n")
        self._openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                      "-keyout", key, "-out", request, "-subj", f"/CN={name}")  # fmt: skip
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-CAcreateserial",
                      "-days", "2", "-extfile", extensions, "-out", certificate)  # fmt: skip
        return certificate, key

    def _openssl(self, *words: str | Path) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=self._folder)
