"""The audit as a page: one line a claim, verdict, number, repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .audit import Row
from .ledger import VERDICTS

MEANING = {
    "holds": "no case found against it",
    "loose": "holds, with slack that a parameter makes unbounded",
    "misprint": "false as printed, and the evident correction holds",
    "gap": "the statement survives, a step of its proof does not",
    "vacuous": "true for a reason that makes it empty, or its conditions can't be met",
    "refuted": "a concrete case within the assumptions breaks it",
    "untested": "not checked, and why",
}


def number(row: Row) -> str:
    """The one number that carries the verdict."""
    e = row.evidence
    if row.verdict == "untested":
        return "—"
    if "ratios" in e:
        survey = f"measured/claimed {e['ratios'][0]:.3g} → {e['ratios'][-1]:.3g}"
    elif "largest_ratio" in e:
        survey = f"{e['cases']} cases, largest ratio {_short(e['largest_ratio'])}" + (", tight" if e["tight"] else "")
    else:
        survey = ""
    if row.verdict == "gap":
        step = e["step"]
        return f"step: {_short(step['measured'])} against {_short(step['claimed'])}; claim: {survey}"
    if survey:
        return survey
    if row.verdict == "vacuous":
        return f"{e['of_which_empty']} of {e['cases']} cases"
    text = f"{_short(row.measured)} against {_short(row.claimed)}"
    if "repaired" in e:
        text += f"; corrected: {e['repaired']['cases']} cases, largest ratio {_short(e['repaired']['largest_ratio'])}"
    return text


def markdown(rows: Sequence[Row], title: str, command: str) -> str:
    """The whole audit as a page of Markdown."""
    counts = Counter(row.verdict for row in rows)
    lines = [
        f"# {title}",
        "",
        f"{len(rows)} claims. Made by `{command}`, which gathers every number anew.",
        "",
        "| verdict | claims | meaning |",
        "| --- | ---: | --- |",
        *(f"| {v} | {counts[v]} | {MEANING[v]} |" for v in VERDICTS if counts[v]),
        "",
    ]
    for paper in dict.fromkeys(row.paper for row in rows):
        lines += [
            f"## {paper}",
            "",
            "| claim | verdict | number | what and why | repair |",
            "| --- | --- | --- | --- | --- |",
        ]
        for row in rows:
            if row.paper == paper:
                cells = (f"`{row.id}`<br>{row.at}", f"**{row.verdict}**", number(row), _what(row), row.repair or "—")
                lines.append("| " + " | ".join(_cell(c) for c in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _what(row: Row) -> str:
    first = row.statement.split("\n\n")[0]
    return f"{first} *{row.why}*"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _short(x: float | None) -> str:
    return "—" if x is None else f"{x:.4g}"
