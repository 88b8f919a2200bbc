"""Archives: file-size histograms, their models with honest envelopes, and exact filesets. Pure computation.

The method is that of Lee, O'Sullivan, Walker and MacKenzie, "Robust Benchmarking for Archival Storage Tiers", PDSW'11,
with its errors mended; ``docs/archive.md`` lists them. Sizes are bytes in buckets and filesets, KiB (x_i = 2^i KiB) on the
grid that models are fitted on, and MiB (2^20 bytes, the paper's MB) for mean sizes.
"""


class ArchiveError(ValueError):
    """Data, a model or a request that cannot be used; the message is one complete line that says what helps."""
