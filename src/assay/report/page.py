"""The HTML report: one file, no network, everything a reader needs to doubt it or to repeat it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay import __version__
from assay.campaign.analysis import Analysis, CellAnalysis, Comparison, smaller_is_better
from assay.campaign.subjects import footings
from assay.model.units import format_bytes, format_seconds
from assay.model.verdict import Verdict
from assay.report.bounds import bound_words
from assay.report.format import DECISION_SIGNS, UNITS, better_words, number, share, span
from assay.report.lab import baseline_rows, degraded_rows, degraded_table, has_lab, shape_rows
from assay.report.records import attempt_rows, environment_rows, repeat_rows, rule_rows, with_names
from assay.report.tables import GLOSSARY
from assay.report.transfers import side_by_side
from assay.stats.compare import Decision

if TYPE_CHECKING:
    from assay.ledger.queries import StudyData
    from assay.report.figures import Figure


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("assay.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["number"] = number
    return found


@cache
def _libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    text = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError("the chart library holds a tag that would end its script element")
    return text


def embedded_json(value: Any) -> Markup:
    """JSON that is safe inside a ``<script>`` element, whatever strings it holds."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, code)
    return Markup(text)  # escaped above


def render_html(data: StudyData, analysis: Analysis, figures: Sequence[Figure]) -> str:
    """The whole page."""
    context = summary(data, analysis)
    specs = {f.id: {k: v for k, v in f.spec.items() if k not in ("$schema", "config")} for f in figures}
    sections: dict[str, list[Figure]] = {}
    for figure in figures:
        sections.setdefault(figure.section, []).append(figure)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            **context,
            figures=sections,
            specs=embedded_json(specs),
            libraries=Markup(_libraries()),  # checked in _libraries
            cells=cell_rows(analysis),
            comparisons=comparison_rows(analysis),
            attempts=attempt_rows(data, analysis),
            rules=rule_rows(data),
            environment=environment_rows(data, analysis),
            repeat=repeat_rows(data, analysis),
            glossary=GLOSSARY,
            lab=lab_section(data),
            kinds=side_by_side(analysis),
        )
    )


def lab_section(data: StudyData) -> dict[str, Any] | None:
    """Shape, baselines and degraded attempts; None when no candidate knows of hosts."""
    if not has_lab(data):
        return None
    return {
        "shape": shape_rows(data),
        "baselines": baseline_rows(data.baselines),
        "degraded": degraded_rows(degraded_table(data)),
    }


def summary(data: StudyData, analysis: Analysis) -> dict[str, Any]:
    """Page one, shared by HTML and Markdown."""
    study, measure, unit = data.study, analysis.measure, UNITS[analysis.metric]
    # as the budget counts: attempts alone, so that a study resumed a week later has not used a week
    used = float((data.attempts["ended_at"] - data.attempts["started_at"]).sum())
    return {
        "study": study,
        "declaration": study.declaration,
        "question": study.declaration.get("question") or f"How do the candidates of {study.name} compare?",
        "source": study.declaration.get("source") or "",
        "created": _when(study.created_at),
        "version": __version__,
        "measure": measure,
        "unit": unit,
        "smaller": smaller_is_better(analysis.metric),
        "percent": f"{100 * measure.confidence:g} %",
        "margin": f"{100 * measure.margin:g} %",
        "correction": {"holm": "Holm", "benjamini-hochberg": "Benjamini–Hochberg"}[measure.correction],
        "analysis": analysis,
        "tally": analysis.tally,
        "blocks_used": data.attempts["block"].n_unique() if len(data.attempts) else 0,
        "time_used": format_seconds(used),
        "budget": format_seconds(measure.budget) if measure.budget else None,
        "candidates": candidate_rows(analysis),
        "matrix": matrix_rows(analysis),
        "floors": floor_rows(analysis),
        "alarms": alarm_rows(analysis),
        "unlike": unlike_rows(data, analysis),
        "study_findings": study_findings(data),
        "bounded": bool(analysis.bounds),
    }


def study_findings(data: StudyData) -> list[dict[str, Any]]:
    """Findings about the study as a whole that are not valid; ``void``: the rule makes the whole study invalid."""
    from assay.checks.registry import Weight, all_rules

    rules = all_rules()
    found = data.checks.filter((pl.col("scope") == "study") & (pl.col("verdict") != Verdict.VALID.value))
    return [
        {
            **row,
            "message": with_names(row["message"], data),
            "void": row["rule"] not in rules or rules[row["rule"]].weight is Weight.VOID,
        }
        for row in found.sort("rule").iter_rows(named=True)
    ]


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def candidate_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """One row per candidate: how it did against the baseline, losses first."""
    rows = []
    for label in analysis.subjects:
        mine = [c for c in analysis.baseline_comparisons if c.a == label]
        count = Counter(c.decision for c in mine)
        decided = [c for c in mine if c.decision in (Decision.FASTER, Decision.SLOWER)]
        worst = min(decided, key=lambda c: c.ratio.estimate, default=None)
        best = max(decided, key=lambda c: c.ratio.estimate, default=None)
        best_on = sum(w.kind in ("winner", "alone") and w.best == label for w in analysis.winners)
        rows.append(
            {
                "label": label,
                "baseline": label == analysis.baseline,
                "slower": count[Decision.SLOWER],
                "faster": count[Decision.FASTER],
                "equivalent": count[Decision.EQUIVALENT],
                "undecided": count[Decision.UNDECIDED],
                "points": len(mine),
                "worst": _ratio(worst, analysis) if worst and worst.ratio.estimate < 1 else None,
                "best": _ratio(best, analysis) if best and best.ratio.estimate > 1 else None,
                "best_on": best_on,
                "shared_on": sum(w.kind == "tie" and label in w.contenders for w in analysis.winners),
            }
        )
    return rows


def _ratio(comparison: Comparison, analysis: Analysis) -> dict[str, str]:
    cell = analysis.cell(comparison.a, comparison.workload_id)
    return {
        "ratio": number(comparison.ratio.estimate),
        "span": span(comparison.ratio),
        "decision": comparison.decision.value,
        "words": better_words(analysis.metric, comparison.decision),
        "sign": DECISION_SIGNS[comparison.decision],
        "reason": comparison.result.reason,
        "workload": cell.workload if cell else comparison.workload_id,
        "n": str(comparison.result.n),
    }


def matrix_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """One row per point: the baseline's value, then each other candidate's ratio, interval and decision."""
    by_key = {(c.a, c.workload_id): c for c in analysis.baseline_comparisons}
    by_cell = {(c.candidate, c.workload_id): c for c in analysis.cells}
    best = {w.workload_id: w for w in analysis.winners}
    rows = []
    for workload_id, winner in best.items():
        base = by_cell.get((analysis.baseline or "", workload_id))
        others = []
        for label in analysis.subjects[1:]:
            cell, comparison = by_cell.get((label, workload_id)), by_key.get((label, workload_id))
            others.append(
                {
                    "label": label,
                    "ratio": _ratio(comparison, analysis) if comparison else None,
                    "value": _value(cell, analysis)["value"],
                    "bound": bound_words(analysis, cell),
                    "note": _note(cell),
                    "missing": cell.not_applicable if cell else "not planned",
                }
            )
        verdict = {
            "winner": winner.best,
            "alone": winner.best,
            "tie": " ≈ ".join(winner.contenders),
            "undecided": "undecided: " + ", ".join(winner.contenders),
            "none": "no valid value",
        }[winner.kind]
        name = next((c.workload for c in analysis.cells if c.workload_id == workload_id), workload_id)
        rows.append(
            {
                "workload": name,
                "baseline": _value(base, analysis),
                "bound": bound_words(analysis, base),
                "note": _note(base),
                "others": others,
                "best": verdict,
                "kind": winner.kind,
            }
        )
    return rows


def _value(cell: CellAnalysis | None, analysis: Analysis) -> dict[str, str]:
    if cell is None or not cell.n:
        return {"value": "–", "span": cell.not_applicable or cell.reason if cell else "not planned"}
    factor = UNITS[analysis.metric].factor
    return {"value": number(cell.interval.estimate * factor), "span": span(cell.interval, factor)}


def _note(cell: CellAnalysis | None) -> str:
    if cell is None or cell.verdict is Verdict.VALID or cell.not_applicable:
        return ""
    return f"{cell.verdict.value}: {' '.join(cell.rules) or cell.reason}"


def floor_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """The harness floor per point and each candidate's share of it."""
    factor = UNITS[analysis.metric].factor
    names = {c.workload_id: c.workload for c in analysis.cells}
    return [
        {
            "workload": names[f.workload_id],
            "candidate": f.candidate,
            "value": number(f.interval.estimate * factor),
            "span": span(f.interval, factor),
            "latency_us": number(f.intervals["latency-mean"].estimate * 1e6),
            "shares": [
                {"text": share(f.shares[s]), "high": f.shares[s] > 0.5} if s in f.shares else None
                for s in analysis.subjects
            ],
            "largest": max(f.shares.values(), default=0.0),
            "largest_text": share(max(f.shares.values(), default=0.0)),
        }
        for f in analysis.floors
    ]


def alarm_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """The A/A line per pair: alarms, and the largest deviation seen, as the noise of this lab."""
    rows = []
    for alarms in analysis.false_alarms:
        tested = [c for c in alarms.comparisons if c.result.n >= 2]
        widest = max(tested, key=lambda c: max(c.ratio.estimate, 1 / c.ratio.estimate), default=None)
        rows.append(
            {
                "subject": alarms.subject,
                "twin": alarms.twin,
                "different": alarms.different,
                "tested": alarms.tested,
                "points": len(alarms.comparisons),
                "widest": _ratio(widest, analysis) if widest else None,
                "alarms": [_ratio(c, analysis) for c in tested if c.decision in (Decision.FASTER, Decision.SLOWER)],
            }
        )
    return rows


def unlike_rows(data: StudyData, analysis: Analysis) -> list[dict[str, str]]:
    """Comparisons that are not of like with like (rule C1): which pair differs in what, and on how many points."""
    known = footings(data, analysis)
    count: Counter[tuple[str, str, str, str]] = Counter()
    for c in analysis.comparisons:
        a, b = known.get((c.a, c.workload_id)), known.get((c.b, c.workload_id))
        if a is None or b is None:
            continue
        words = {
            "tier": f"{a.tier} against {b.tier}",
            "data set": f"{_bytes(a.dataset)} against {_bytes(b.dataset)}",
            "hosts": f"{', '.join(a.hosts)} against {', '.join(b.hosts)}",
        }
        for what in a.differences(b):
            count[c.a, c.b, what, words[what]] += 1
    titles = {"tier": "durability tier", "data set": "data set", "hosts": "hosts"}
    return [
        {"a": a, "b": b, "what": titles[what], "words": words, "points": str(points)}
        for (a, b, what, words), points in count.items()
    ]


def _bytes(text: str) -> str:
    return format_bytes(int(text)) if text.isdigit() else text


def cell_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Absolute numbers of every cell, all metrics."""
    rows = []
    for cell in analysis.cells:
        figures = {m: number(i.estimate * UNITS[m].factor) for m, i in cell.intervals.items()}
        factor = UNITS[analysis.metric].factor
        rows.append(
            {
                "cell": cell,
                "figures": figures,
                "span": span(cell.interval, factor) if cell.n else "–",
                "median": number(cell.median.estimate * factor),
                "median_span": span(cell.median, factor) if cell.n else "–",
                "bound": bound_words(analysis, cell),
                "verdict": "not applicable" if cell.not_applicable else cell.verdict.value,
                "rules": " ".join(cell.rules),
                "flags": " ".join(cell.flags),
            }
        )
    return rows


def comparison_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Every comparison of the study, each pair once."""
    return [
        {
            "a": c.a,
            "b": c.b,
            **_ratio(c, analysis),
            "p": number(c.result.p_value, 2),
            "p_adjusted": number(c.result.p_adjusted, 2),
        }
        for c in analysis.comparisons
    ]
