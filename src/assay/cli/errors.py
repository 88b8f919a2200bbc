"""Which exit code an error means. Imported only when something went wrong or is about to."""

from __future__ import annotations

BAD_INPUT = 2
TOOL_FAILED = 3


class BadInput(Exception):  # noqa: N818 (it is what the user gave, not an error of the program)
    """What the user gave cannot be used; the message is complete."""


def one_line(error: Exception) -> tuple[str, int]:
    """Message and exit code of a known error; an unknown one is a defect and is raised again."""
    from assay.archive import ArchiveError
    from assay.lab.errors import LabError
    from assay.lab.host import HostError

    if isinstance(error, ArchiveError | BadInput):
        return str(error), BAD_INPUT
    if isinstance(error, LabError | HostError):
        return str(error), TOOL_FAILED
    from assay.campaign.executor import CampaignError, ClosureChangedError  # a second or two
    from assay.ledger.bundle import BundleError
    from assay.ledger.migrate import LedgerError
    from assay.model.plan import PlanError
    from assay.model.source import StudyError
    from assay.systems.base import AdapterError
    from assay.trace.calls import TraceError
    from assay.workloads.base import WorkloadError

    if isinstance(error, StudyError | PlanError | AdapterError | BundleError | ClosureChangedError):
        return str(error), BAD_INPUT
    if isinstance(error, CampaignError | LedgerError | WorkloadError | TraceError):
        return str(error), TOOL_FAILED
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", TOOL_FAILED
    raise error
