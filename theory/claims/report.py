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

NOTATION = {
    "cfl": (
        "N clients, S of them sampled, K local steps, T rounds, η_l and η_g the local and global rate; G², B² "
        "client drift, D², A² time drift, F² its overlap, α its correlation, R² information loss, σ² noise of "
        "a step; p_{t,τ} the history weights; L-smooth, μ-strongly convex."
    ),
    "special": (
        "M clients of which N are sampled in each of T rounds, E local steps of size γ_L, a server step γ_G, "
        "K tasks, λ the anchor's weight; gradients at most B, losses L-smooth, σ_L the noise, σ_G the spread "
        "of clients, σ_T that of tasks; f_{1:K} the sum of the tasks' losses, θ_K^0 where task K starts."
    ),
    "fedeve": (
        "w the model, M the momentum that predicts, Δ what the S sampled clients report on average; Q and R "
        "the two drifts with variances σ_Q² (prediction) and σ_R² (observation), K the Kalman gain, η_g the "
        "server's rate, d the dimension. In Appendix C, K counts local steps and L_m, L_p are constants of "
        "smoothness and loss."
    ),
    "cflag": (
        "f the loss on the past, g on the current task, h on both; f† on the memory, b = ∇f† − ∇f its bias, "
        "with ‖b‖² ≤ m‖∇f‖²; N clients of weight p_i, E local steps, α and β the rates on memory and current "
        "data; a_i the sum of a client's incremental gradients, Λ_i = ⟨∇f†, a_i⟩, Γ(t) the forgetting and "
        "B(t) the overfitting term."
    ),
}
"""The symbols that a page of a paper's claims takes for granted."""


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
        lines += [f"## {paper}", ""]
        if paper in NOTATION:
            lines += [NOTATION[paper], ""]
        lines += [
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
