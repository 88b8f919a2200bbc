"""Around a degraded attempt: kill hosts, prove the data, and afterwards bring the hosts back and prove the data again."""

from __future__ import annotations

import time
from pathlib import Path

from assay.lab.host import Host, HostError
from assay.model.evidence import DegradedEvidence
from assay.systems.base import AdapterError, KillsHosts
from assay.workloads import integrity

CHECK_SECONDS = 120.0


def lose_hosts(adapter: KillsHosts, client: Host, directory: Path, count: int, seed: int) -> DegradedEvidence:
    """Lay the integrity files, kill ``count`` hosts, and check the files through what is left of the system.

    Wrong data are in the evidence: whether the load can run at all is for the load to show. Raises AdapterError or HostError
    when the hosts could not be killed or the files not be written before.
    """
    try:
        client.call(integrity.write_files, directory, seed, timeout_seconds=CHECK_SECONDS)
    except OSError as error:
        raise AdapterError(f"the integrity files cannot be written: {error.strerror}") from None
    started = time.monotonic()
    killed = adapter.kill_hosts(count)
    seconds = time.monotonic() - started
    problems = _check(client, directory, seed, "with the hosts gone")
    return DegradedEvidence(killed=killed, killed_seconds=seconds, verified_degraded=not problems, problems=problems)


def bring_back(
    adapter: KillsHosts, client: Host, directory: Path, seed: int, lost: DegradedEvidence, timeout_seconds: float
) -> DegradedEvidence:
    """Start the hosts again, wait until healed, and check the files once more. Never raises: what failed is in the evidence,
    and the hosts' absence will show in the next attempt's health."""
    found: dict[str, object] = {}
    problems = list(lost.problems)
    try:
        found["restarted_seconds"] = adapter.restart_hosts(timeout_seconds)
        healed = adapter.heal(timeout_seconds)
        found["healed_seconds"] = healed
        if healed is None:
            problems.append(f"not healed within {timeout_seconds:g} s")
        wrong = _check(client, directory, seed, "after healing")
        found["verified_healed"] = not wrong
        problems += wrong
    except (AdapterError, HostError, OSError) as error:
        problems.append(str(error).splitlines()[0] if str(error) else type(error).__name__)
    return lost.model_copy(update={**found, "problems": problems})


def failure(evidence: DegradedEvidence) -> str:
    """Why the attempt counts as the system's failure; empty when its data were right throughout and it healed."""
    return (
        f"degraded by {', '.join(evidence.killed)}: {integrity.summary(evidence.problems)}" if evidence.problems else ""
    )


def _check(client: Host, directory: Path, seed: int, when: str) -> list[str]:
    try:
        wrong = client.call(integrity.check_files, directory, seed, timeout_seconds=CHECK_SECONDS)
    except HostError as error:
        wrong = [str(error)]
    return [f"{when}: {line}" for line in wrong]
