"""Prints docs/checks.md."""

import sys

from assay.checks.registry import reference

if __name__ == "__main__":
    sys.stdout.write(reference())
