"""What the README shows runs, and what it links to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", TEXT, re.S))
def test_examples_run(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {})


def test_links_resolve() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_two_commands_come_first() -> None:
    first, second = TEXT.index("make reproduce"), TEXT.index("make test")
    assert first < second < TEXT.index("![") < TEXT.index("```python")
