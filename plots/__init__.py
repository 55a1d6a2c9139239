"""The papers' figures and tables, redrawn from `nqm` and `theory`.

Importing this package draws nothing and imports no matplotlib; `plots.registry` finds what can be made.
"""
