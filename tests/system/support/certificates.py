"""Certificates of the test's own, made with openssl: an authority, and what it has signed."""

from __future__ import annotations

import subprocess
from pathlib import Path

# All that strict clients (Python from 3.13 on) want, whatever the machine's own configuration of openssl adds.
CONFIGURATION = """
[req]
distinguished_name = name
x509_extensions = authority
[name]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
"""
SIGNED = """
basicConstraints = critical,CA:FALSE
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
ELLIPTIC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs certificates; whoever trusts `ca` trusts them."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        self._configuration = folder / f"{name}.cnf"
        self._configuration.write_text(CONFIGURATION)
        self._request("-x509", "-days", "2", "-keyout", self._key, "-out", self.ca, "-subj", f"/CN={name}")

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """A certificate for these hosts (`DNS:localhost`, `IP:127.0.0.1`), and its key."""
        certificate, key, request = (self._folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(SIGNED + (f"subjectAltName = {','.join(hosts)}\n" if hosts else ""))
        self._request("-new", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-CAcreateserial",
                      "-days", "2", "-extfile", extensions, "-out", certificate)  # fmt: skip
        return certificate, key

    def _request(self, *words: str | Path) -> None:
        self._openssl("req", "-config", self._configuration, *ELLIPTIC, *words)

    def _openssl(self, *words: str | Path) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=self._folder)
