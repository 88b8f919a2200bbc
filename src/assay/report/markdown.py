"""The report as Markdown, short enough for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.report.lab import degraded_rows, degraded_table, gigabits, has_lab, shape_rows
from assay.report.page import summary

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis
    from assay.ledger.queries import StudyData
    from assay.report.bounds import BoundWords

_SPECIAL = "\\`*_[]<>|#~"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, in tables too: no markup, no HTML, one line."""
    plain = " ".join(str(text).split())
    plain = "".join(f"\\{c}" if c in _SPECIAL else c for c in plain.replace("&", "&amp;"))
    return plain.replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\_", "_")


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A pipe table; numbers may be anything, cells are taken as Markdown."""
    lines = [" | ".join(heads), " | ".join("---" for _ in heads), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _ratio(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio['sign']} **{ratio['ratio']}** ({ratio['span']}) {ratio['words']}"


def _share(bound: BoundWords | None) -> str:
    return f"; {bound.share_text} of bound" if bound is not None and bound.share is not None else ""


def _bound_facts(page: dict[str, Any]) -> list[str]:
    """One line per distinct bound, in words."""
    rows = [(page["analysis"].baseline, row["bound"]) for row in page["matrix"]]
    rows += [(other["label"], other["bound"]) for row in page["matrix"] for other in row["others"]]
    found: dict[str, list[str]] = {}
    for label, bound in rows:
        if bound is not None and label not in (labels := found.setdefault(bound.title, [])):
            labels.append(label)
    return [f"{escape(', '.join(labels))}: {escape(title)}" for title, labels in found.items()]


def _lab_facts(data: StudyData) -> list[str]:
    if not has_lab(data):
        return []
    facts = ["lab: " + escape("; ".join(f"{what} {words}" for what, words in shape_rows(data)))]
    found = data.baselines
    if found is not None and found.links:
        rates = sorted(link.bytes_per_second for link in found.links)
        facts.append(f"network between hosts (iperf3): {gigabits(rates[0])} to {gigabits(rates[-1])} Gbit/s")
    facts += [f"baselines: {escape(problem)}" for problem in (found.problems if found else [])]
    return facts


def _degraded(data: StudyData) -> list[str]:
    """A table of attempts with hosts lost on purpose, if there are any."""
    heads = ["point", "candidate", "killed", "data right", "restarted (s)", "healed (s)", "data right after healing"]
    keys = ("workload", "candidate", "killed", "right_degraded", "restarted", "healed", "right_healed")
    rows = [[escape(row[key]) for key in keys] for row in degraded_rows(degraded_table(data))]
    return [table(heads, rows)] if rows else []


def render_markdown(data: StudyData, analysis: Analysis) -> str:
    """Page one of the report: question, answer, verdict table, A/A line, harness floor, attempts."""
    page = summary(data, analysis)
    unit, tally, measure = page["unit"], page["tally"], page["measure"]
    worse, better = ("worse", "better") if page["smaller"] else ("slower", "faster")
    parts = [f"## {escape(page['question'])}"]
    if data.study.scale < 1:
        parts.append(f"**Scaled down to {data.study.scale:g} of the declared sizes and times.**")
    for finding in page["study_findings"]:
        if finding["verdict"] == "invalid" and finding["void"]:
            parts.append(f"**Rule {finding['rule']} is broken for the whole study: {escape(finding['message'])}**")
    parts.append("\n".join(f"- {escape(sentence)}" for sentence in analysis.sentences))
    parts.append(
        table(
            ["candidate", f"▼ {worse}", f"▲ {better}", "= equivalent", "? undecided", "best on", "shares best on"],
            [
                [escape(c["label"]) + (" (baseline)" if c["baseline"] else "")]
                + (["–"] * 4 if c["baseline"] else [str(c[k]) for k in ("slower", "faster", "equivalent", "undecided")])
                + [str(c["best_on"]), str(c["shared_on"])]
                for c in page["candidates"]
            ],
        )
    )
    heads = ["workload point", f"{escape(analysis.baseline or '–')} ({unit.symbol})"]
    heads += [f"{escape(label)} (ratio)" for label in analysis.subjects[1:]] + ["best"]
    rows = []
    for row in page["matrix"]:
        cells = [
            escape(row["workload"]),
            f"{row['baseline']['value']} ({row['baseline']['span']}){_share(row['bound'])}",
        ]
        for other in row["others"]:
            note = f" *{escape(other['note'])}*" if other["note"] else ""
            cells.append(_ratio(other["ratio"]) + _share(other["bound"]) + note)
        rows.append([*cells, escape(row["best"])])
    parts.append(table(heads, rows))
    parts.append(
        f"Ratios are candidate to baseline within the same block, {page['percent']} intervals, {page['correction']} "
        f"adjustment over {len(analysis.comparisons)} comparisons, margin ±{page['margin']}; above 1 the candidate "
        f"is better. MB/s = 10^6 bytes per second."
    )
    facts = [
        f"{tally.valid} of {tally.attempts} attempts valid, {tally.invalid} invalid, {tally.unknown} unknown, "
        f"{tally.failed} failed, {tally.lost} lost",
        f"{page['blocks_used']} of at most {measure.blocks.maximum} blocks, {page['time_used']}"
        + (f" of a budget of {page['budget']}" if page["budget"] else ""),
    ]
    if page["floors"]:
        near = max(page["floors"], key=lambda f: f["largest"])
        facts.append(
            f"harness floor ({escape(near['candidate'])}): at most {near['largest_text']} of it was reached, on "
            f"{escape(near['workload'])}"
        )
    facts += _bound_facts(page)
    facts += [
        f"not like with like: {escape(u['a'])} and {escape(u['b'])} differ in {u['what']} ({escape(u['words'])}) on "
        f"{u['points']} points"
        for u in page["unlike"]
    ]
    facts += _lab_facts(data)
    parts += _degraded(data)
    parts.append("\n".join(f"- {fact}" for fact in facts))
    parts.append(f"<sub>Assay {page['version']}, study {data.study.id}, seed {data.study.seed}</sub>")
    return "\n\n".join(parts) + "\n"
