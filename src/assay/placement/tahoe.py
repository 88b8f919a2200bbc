"""Tahoe-LAFS: the permuted ring of servers, storage indexes, k-of-N shares (``util/hashutil.py``, ``immutable/``).

Verified against tahoe-lafs 1.20.0 (``tahoe_permuted_ring.json``, 25 rings of 20 servers, and 3 convergent keys). Which of
the first ``2 N`` servers get shares is decided by the order of Python sets in the real client, hence by lot here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.placement.errors import PlacementError

SEGMENT = 1 << 20  # default since 1.19; 128 KiB before


def _netstring(text: bytes) -> bytes:
    return b"%d:%s," % (len(text), text)


def tagged_hash(tag: bytes, value: bytes, size: int = 32) -> bytes:
    """SHA-256 twice over a tag and a value, cut to ``size`` bytes."""
    return hashlib.sha256(hashlib.sha256(_netstring(tag) + value).digest()).digest()[:size]


def storage_index(key: bytes) -> bytes:
    """The 16 bytes that name a file on the servers, from its 16-byte key."""
    return tagged_hash(b"allmydata_immutable_key_to_storage_index_v1", key, 16)


def convergent_key(plaintext: bytes, needed: int, total: int, segment: int, secret: bytes) -> bytes:
    """The key of a file under convergent encryption: equal files have equal keys for one secret."""
    parameters = b"%d,%d,%d" % (needed, total, segment)
    tag = b"allmydata_immutable_content_to_key_with_added_secret_v1+" + _netstring(secret) + _netstring(parameters)
    return tagged_hash(tag, plaintext, 16)


def permuted_ring(index: bytes, seeds: Sequence[bytes]) -> list[int]:
    """Servers, by number, in the order in which a file asks them; ``seeds`` are their permutation seeds."""
    return sorted(range(len(seeds)), key=lambda i: hashlib.sha1(index + seeds[i]).digest())


@dataclass(frozen=True)
class Encoding:
    """k-of-N: any ``needed`` of ``total`` shares give the file back."""

    needed: int = 3
    total: int = 10
    segment: int = SEGMENT

    def __post_init__(self) -> None:
        if not 1 <= self.needed <= self.total <= 256 or self.segment < 1:
            raise PlacementError(f"{self.needed} of {self.total} shares is no encoding (1 to 256, needed <= total)")

    def servers(self, index: bytes, seeds: Sequence[bytes], rng: np.random.Generator | None = None) -> list[int]:
        """The server of every share. With ``rng``: RANDOM, a uniform choice among the first ``2 N`` of the ring, as
        1.13 and later behave; without: the first N in order, as before. Fewer servers take several shares each."""
        ring = permuted_ring(index, seeds)
        if not ring:
            raise PlacementError("no storage servers")
        if rng is not None:
            ring = rng.permutation(ring[: 2 * self.total]).tolist()
        return [int(ring[i % len(ring)]) for i in range(self.total)]

    def segments(self, offset: int, length: int, size: int) -> range:
        """Segments that a read touches; each is read whole, one block from each of ``needed`` servers."""
        whole = self.segment_size(size)
        return range(0) if length < 1 else range(offset // whole, (offset + length - 1) // whole + 1)

    def segment_size(self, size: int) -> int:
        """Bytes of a segment of a file: a multiple of ``needed``."""
        return -(-min(self.segment, max(size, 1)) // self.needed) * self.needed
