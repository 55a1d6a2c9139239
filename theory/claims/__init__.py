"""The claim ledger: every numbered statement of the papers as a check, with a verdict and the evidence for it."""

from .audit import Row, audit
from .ledger import Claim, Comparison, registry, select

__all__ = ["Claim", "Comparison", "Row", "audit", "registry", "select"]
