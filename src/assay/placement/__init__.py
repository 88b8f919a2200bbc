"""Distribution functions: which targets (OSDs, bricks, data nodes) hold which piece of which file, as each file system
decides it. Pure computation: maps, layouts and traces come in as bytes, text or arrays, nothing is read from disk.

Where the real system is deterministic the functions here give the same answer bit for bit; where it draws lots they take
a seed and say so. Each function names the upstream source it follows and what it is verified against.
"""

from assay.placement.errors import PlacementError

__all__ = ["PlacementError"]
