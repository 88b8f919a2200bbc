"""The data set where fio's own engine reaches the system: objects, written once through the same engine.

fio takes reads of objects that are not there for done, at any speed, and no marker can be kept beside them: what was written
is remembered with the target, which lives as long as the deployment.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from assay.lab.host import Host, HostError
from assay.model.point import FioPoint
from assay.workloads import fio_job, fio_output
from assay.workloads.base import Target, WorkloadError

_LAY_OUT_BYTES = 1 << 20  # per operation


def ensure(target: Target, point: FioPoint, clients: Sequence[Host], seed: int, timeout_seconds: float) -> None:
    """Write every thread's objects unless they are there and large enough. Raises WorkloadError with one line."""
    assert target.engine is not None
    end = time.monotonic() + timeout_seconds
    running = []
    try:
        for number, host in enumerate(clients):
            names = [fio_job.file_name(number, thread) for thread in range(point.threads)]
            if all(target.laid_out.get(name, 0) >= point.size for name in names):
                continue
            running.append((names, host.spawn(_command(target.engine, point, number, seed))))
        while running:
            names, process = running.pop(0)
            done = process.wait(max(0.0, end - time.monotonic()))
            if done.exit_code is None:
                raise WorkloadError(f"laying out objects took more than {timeout_seconds:.0f} s")
            if done.exit_code != 0 or not _wrote(done.stdout, point.size * point.threads):
                words = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
                raise WorkloadError(f"fio could not lay out objects: {words[-300:] or 'it wrote too little'}")
            target.laid_out.update(dict.fromkeys(names, point.size))
    except HostError as error:
        raise WorkloadError(str(error)) from error
    finally:
        for _, process in running:
            process.kill()


def _command(engine: dict[str, str], point: FioPoint, client: int, seed: int) -> list[str]:
    options = {
        "thread": "1",
        "numjobs": str(point.threads),
        **fio_job.object_options(point.model_copy(update={"pattern": "write"}), client, engine),
        "rw": "write",
        "bs": str(min(_LAY_OUT_BYTES, point.size)),
        "size": str(point.size),
        "iodepth": "4",
        "refill_buffers": "1",
        "randseed": str(fio_job.client_seed(seed, client)),
    }
    return ["fio", "--output-format=json", "--name=lay-out", *(f"--{key}={value}" for key, value in options.items())]


def _wrote(output: bytes, wanted: int) -> bool:
    try:
        jobs = fio_output.parse(output).jobs
    except fio_output.FioOutputError:
        return False
    return sum(job.totals["write"].bytes for job in jobs if "write" in job.totals) >= wanted
