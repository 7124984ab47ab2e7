"""Step tokens and idempotency keys.

`token_seed = blake2b(execution_id NUL run, key=secret)` and `token = blake2b(path NUL generation,
key=token_seed)`. Nothing is minted, so nothing can drift: every attempt, process and even a repeated
creation after lost writes arrives at the same token, and nobody without the namespace's secret can guess it.
"""

from __future__ import annotations

from hashlib import blake2b

DIGEST_BYTES = 16
SECRET_BYTES = 32


def token_seed(execution_id: str, run: int, secret: bytes) -> bytes:
    """The seed of all tokens of one run of an execution; `run` grows only by an explicit replace."""
    return blake2b(f"{execution_id}\0{run}".encode(), key=secret, digest_size=DIGEST_BYTES).digest()


def step_token(seed: bytes, path: str, generation: int = 0) -> str:
    """The token (32 lower hex digits) of the operation at `path`; `generation` is bumped by `reset` alone."""
    return blake2b(f"{path}\0{generation}".encode(), key=seed, digest_size=DIGEST_BYTES).hexdigest()


def idempotency_key(root_execution_id: str, token: str) -> str:
    """What a receiver gets: the same for all attempts of one logical step, for ever."""
    return f"{root_execution_id}:{token}"


def unit_interval(token: str, attempt: int) -> float:
    """A number in [0, 1) that belongs to this attempt of this step: the `U` of the jitter formula.

    Derived, not drawn, so that a crash recomputes the same delay and a schedule can be printed beforehand.
    """
    digest = blake2b(f"{token}\0{attempt}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 9007199254740992.0
