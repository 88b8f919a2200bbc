"""Progress on stderr: a bar with the time left on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from assay.model import units
from assay.model.evidence import AttemptEvidence, AttemptStatus

LINE_EVERY_SECONDS = 10.0


class ConsoleProgress:
    """Implements campaign.executor.Progress."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = self._console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._live,
            transient=True,
        )
        self._task: TaskID | None = None
        self._spent = 0.0
        self._last_line = 0.0
        self._began = time.monotonic()

    def __enter__(self) -> ConsoleProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        """See executor.Progress."""
        self._line(text)

    def block(self, number: int, stage: str, cells: int) -> None:
        """See executor.Progress."""
        if not self._live:
            self._line(f"block {number} ({stage}): {cells} attempts")
        self._describe(f"block {number} ({stage})")

    def attempt(
        self, evidence: AttemptEvidence, name: str, verdict: str, broken: list[str], left_seconds: float
    ) -> None:
        """See executor.Progress."""
        self._spent += evidence.ended_at - evidence.started_at
        if self._task is not None:
            self._progress.update(
                self._task,
                completed=self._spent,
                total=self._spent + left_seconds,
                left=f"{units.format_seconds(left_seconds)} left" if left_seconds else "",
            )
        if evidence.status in (AttemptStatus.FAILED, AttemptStatus.LOST):
            self._line(f"{evidence.candidate}, {name}: {evidence.status.value}: {evidence.error}")
        elif verdict == "invalid":
            self._line(f"{evidence.candidate}, {name}: void ({', '.join(broken)})")
        elif not self._live and time.monotonic() - self._last_line > LINE_EVERY_SECONDS:
            self._line(f"{units.format_seconds(left_seconds)} left")

    def _describe(self, text: str) -> None:
        if self._task is None:
            self._task = self._progress.add_task(text, total=None, left="")
        else:
            self._progress.update(self._task, description=text)

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        if self._live:
            self._progress.console.print(escape(text), highlight=False)
        else:
            print(f"[{time.monotonic() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)
