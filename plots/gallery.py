"""``index.html``: a plain gallery of the figures and tables that lie in a folder."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from nqm import InvalidInput, load
from nqm.result import writing

from .registry import Entry, entries

SUFFIXES = (".png", ".pdf", ".nc")

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Driftproof: figures and tables</title>
<style>
:root {{ --ink: #222; --muted: #666; --line: #e3e3e3; --soft: #f6f6f4; --link: #0072b2; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 76rem; padding: 2.5rem 1.5rem 5rem; color: var(--ink); background: #fff;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
h1 {{ font-size: 1.7rem; margin: 0 0 .3rem; }}
h2 {{ font-size: 1.2rem; margin: 0; }}
a {{ color: var(--link); text-decoration: none; }}
a:hover {{ text-decoration: underline; }}
nav, .meta {{ color: var(--muted); font-size: .9rem; }}
nav a, .meta a {{ margin-right: .9rem; }}
section {{ margin-top: 3rem; padding-top: 1.4rem; border-top: 1px solid var(--line); }}
figure {{ margin: 1rem 0 0; }}
figure img {{ display: block; width: 100%; height: auto; }}
figcaption, .note {{ max-width: 62rem; margin-top: .8rem; }}
code {{ background: var(--soft); border-radius: 4px; padding: .12rem .4rem; margin-right: .9rem;
  font-size: .86em; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; width: 100%; font-size: .88rem;
  font-variant-numeric: tabular-nums; }}
th, td {{ text-align: left; vertical-align: top; padding: .45rem .9rem .45rem 0; white-space: nowrap;
  border-bottom: 1px solid var(--line); }}
thead th {{ border-bottom: 1.5px solid var(--ink); }}
td small {{ color: var(--muted); font-size: .92em; }}
ul {{ margin: .2rem 0 0; padding-left: 1.2rem; color: var(--muted); font-size: .92rem; }}
</style>
</head>
<body>
<h1>Driftproof</h1>
<p class="meta">Figures and tables of the papers, redrawn, with the data and the command behind each.</p>
<nav>{links}</nav>
{sections}
</body>
</html>
"""


def write(out: Path) -> Path:
    """Write ``out/index.html`` about everything registered whose files lie in ``out``."""
    sections = []
    for entry in entries("figure"):
        if all(entry.path(out, suffix).is_file() for suffix in SUFFIXES):
            sections.append((entry, _figure(entry, out)))
    for entry in entries("table"):
        if entry.path(out, ".json").is_file():
            sections.append((entry, _table(entry, out)))
    links = "".join(f'<a href="#{_anchor(entry)}">{escape(entry.title)}</a>' for entry, _ in sections)
    path = out / "index.html"
    with writing(path) as temporary:
        temporary.write_text(
            PAGE.format(links=links, sections="\n".join(body for _, body in sections)), encoding="utf-8"
        )
    return path


def _anchor(entry: Entry) -> str:
    return f"{entry.kind}-{entry.id.replace('/', '-')}"


def _section(entry: Entry, suffixes: tuple[str, ...], body: str) -> str:
    files = "".join(f'<a href="{escape(entry.id + s)}">{s}</a>' for s in suffixes)
    return (
        f'<section id="{_anchor(entry)}">\n<h2>{escape(entry.title)}</h2>\n'
        f'<p class="meta">paper {escape(entry.paper)} · <code>{escape(entry.command)}</code>{files}</p>\n'
        f"{body}\n</section>"
    )


def _figure(entry: Entry, out: Path) -> str:
    attrs = load(entry.path(out, ".nc")).attrs
    image = f'<img src="{escape(entry.id)}.png" alt="{escape(entry.expected)}">'
    caption = escape(attrs["caption"])
    if "ours" in attrs:  # what the paper leaves open and we chose
        caption += f" <small>{escape(attrs['ours'])}</small>"
    return _section(
        entry,
        SUFFIXES,
        f'<figure><a href="{escape(entry.id)}.pdf">{image}</a><figcaption>{caption}</figcaption></figure>',
    )


def _table(entry: Entry, out: Path) -> str:
    path = entry.path(out, ".json")
    try:
        grid = entry.show(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(f"{path}: not a readable table ({type(error).__name__}); make it again") from None
    head = "".join(f"<th>{escape(cell)}</th>" for cell in grid.header)
    rows = "\n".join(
        f"<tr><th>{_cell(name)}</th>" + "".join(f"<td>{_cell(cell)}</td>" for cell in cells) + "</tr>"
        for name, *cells in grid.rows
    )
    notes = ""
    for sentence, items in grid.notes:
        listed = "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>" if items else ""
        notes += f'<div class="note">{escape(sentence)}{listed}</div>\n'
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
    return _section(entry, (".json",), f'<div class="wide">{table}</div>\n{notes}')


def _cell(text: str) -> str:
    first, *rest = escape(text).split("\n")
    return first + "".join(f"<br><small>{line}</small>" for line in rest)
