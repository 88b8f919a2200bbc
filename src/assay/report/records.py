"""Rows of the report that show what the ledger holds: attempts, verdicts of checks, environment, commands."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.model.verdict import Verdict
from assay.report.bounds import share_words
from assay.report.format import number

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis
    from assay.ledger.queries import StudyData

#: Verdicts listed per rule; the rest is counted, and complete in checks.csv.
MOST_PER_RULE = 100
#: Artefacts shown in the report are texts a person can type; larger ones stay in the ledger.
MOST_ARTEFACT_BYTES = 16_000
#: Attempts listed on the page; of more, those that are not valid come first, and attempts.csv has all.
MOST_ATTEMPTS = 3000
#: Attempts whose environment is compared.
ENVIRONMENT_ATTEMPTS = 24


def with_names(text: str, data: StudyData) -> str:
    """Rules know workload points by id; readers know them by name."""
    for workload in data.workloads:
        text = text.replace(workload.id, workload.name)
    return text


def attempt_rows(data: StudyData, analysis: Analysis) -> list[dict[str, Any]]:
    """Attempts in order of start: all of them up to MOST_ATTEMPTS, beyond that the valid ones are cut."""
    frame = data.attempts
    if len(frame) > MOST_ATTEMPTS:
        good = frame["verdict"] == Verdict.VALID
        frame = frame.filter(~good).vstack(frame.filter(good)).head(MOST_ATTEMPTS).sort("started_at")
    names = {w.id: w.name for w in data.workloads}
    first = data.attempts["started_at"].min() if len(data.attempts) else 0.0
    return [
        {
            "at": number(row["started_at"] - first, 4),
            "workload": names[row["workload_id"]],
            "candidate": row["candidate"],
            "block": row["block"],
            "try": row["try_number"],
            "status": row["status"],
            "verdict": row["verdict"],
            "rules": " ".join(row["broken_rules"]),
            "seconds": number(row["ended_at"] - row["started_at"]),
            "bandwidth": number(_times(row["bandwidth"], 1e-6), 4),
            "iops": number(row["iops"], 4),
            "mean": number(_times(row["latency_mean"], 1e3)),
            "p99": number(_times(row["latency_p99"], 1e3)),
            "share": share_words(_share(analysis, row)),
        }
        for row in frame.iter_rows(named=True)
    ]


def _share(analysis: Analysis, row: dict[str, Any]) -> float | None:
    bound = analysis.bounds.get(row["cell_id"])
    return bound.share(row["bandwidth"]) if bound is not None and row["bandwidth"] is not None else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def rule_rows(data: StudyData) -> list[dict[str, Any]]:
    """Verdicts grouped by rule: how many of each, then those that are not valid with their evidence."""
    names = {w.id: w.name for w in data.workloads}
    cells = {c.id: f"{c.candidate}, {names[c.workload_id]}" for c in data.cells}
    subjects = {
        row[0]: f"{cells[row[1]]}, block {row[2]}" for row in data.attempts.select("id", "cell_id", "block").iter_rows()
    }
    subjects |= cells | {data.study.id: "the study"}
    by_rule: dict[str, list[dict[str, Any]]] = {}
    for row in data.checks.sort("rule").iter_rows(named=True):
        by_rule.setdefault(row["rule"], []).append(row)
    titles = _rule_titles()
    found = []
    for rule, rows in by_rule.items():
        count = Counter(row["verdict"] for row in rows)
        order = {"invalid": 0, "unknown": 1, "valid": 2}
        ranked = sorted(rows, key=lambda row: order.get(row["verdict"], 3))
        bad = [row for row in ranked if row["verdict"] != "valid"]
        shown = bad[:MOST_PER_RULE] or ranked[:3]
        found.append(
            {
                "rule": rule,
                "title": titles.get(rule, ""),
                "scope": ", ".join(sorted({row["scope"] for row in rows})),
                "valid": count["valid"],
                "invalid": count["invalid"],
                "unknown": count["unknown"],
                "shown": [
                    {
                        **row,
                        "message": with_names(row["message"], data),
                        "what": subjects.get(row["subject"], row["subject"]),
                        "evidence": _pretty(row["evidence"]),
                    }
                    for row in shown
                ],
                "hidden": len(bad) - len(shown) if bad else 0,
                "examples": not bad,
            }
        )
    return found


def _rule_titles() -> dict[str, str]:
    from assay.checks.registry import all_rules

    return {rule.id: rule.doc.splitlines()[0] for rule in all_rules().values() if rule.doc}


def _pretty(text: str) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    if not found:
        return ""
    if isinstance(found, dict) and all(not isinstance(v, dict | list) for v in found.values()):
        return ", ".join(f"{k} = {v}" for k, v in found.items())
    return json.dumps(found, indent=1, ensure_ascii=False)


def environment_rows(data: StudyData, analysis: Analysis) -> list[dict[str, Any]]:
    """Facts of the hosts, of the candidates, and of the attempts; a fact that varied shows all its values."""
    rows: dict[tuple[str, str], list[str]] = {}

    def add(where: str, facts: Any, prefix: str = "") -> None:
        if isinstance(facts, dict):
            for key, value in facts.items():
                add(where, value, f"{prefix}.{key}" if prefix else str(key))
        elif (text := str(facts)[:300]) not in (known := rows.setdefault((where, prefix), [])):
            known.append(text)

    for host in data.hosts:
        add(f"host {host.name}", host.facts)
    for candidate in data.candidates:
        add(f"candidate {candidate.label}", {"system": candidate.system, **candidate.facts, **candidate.tuning})
    ids = [c.representative for c in analysis.cells if c.representative]
    step = max(1, len(ids) // ENVIRONMENT_ATTEMPTS)
    for attempt_id in ids[::step]:
        add("attempts", data.evidence(attempt_id).environment)
    return [
        {"where": where, "key": key, "values": values, "varied": len(values) > 1}
        for (where, key), values in rows.items()
    ]


def repeat_rows(data: StudyData, analysis: Analysis) -> list[dict[str, Any]]:
    """Command and job file of one attempt per point, as kept in the ledger."""
    found = []
    for winner in analysis.winners:
        cells = [c for c in analysis.cells if c.workload_id == winner.workload_id and c.representative]
        if not cells or cells[0].representative is None:
            continue
        cell = cells[0]
        texts = []
        for name, content_hash in data.evidence(cells[0].representative).artefacts.items():
            content = data.artefact(content_hash)
            if content is None or len(content) > MOST_ARTEFACT_BYTES or name.endswith((".json", ".log")):
                continue
            try:
                texts.append({"name": name, "text": content.decode()})
            except UnicodeDecodeError:
                continue
        if texts:
            found.append({"workload": cell.workload, "candidate": cell.candidate, "files": texts})
    return found
