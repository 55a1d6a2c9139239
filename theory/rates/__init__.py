"""Predicted against measured exponents: how rounds, or errors, grow with every parameter of a rate claim.

`fit` reads an exponent off a curve, with an interval that knows of curvature and a name for a logarithm. `world` and
`rounds` measure rounds to an accuracy on the noisy quadratic model, `limits` says what no method can do better, and
`claims` holds the form of a rate claim, its verdict and the registry; the claims themselves are declared in `cfl`,
`cfl_table`, and `others`.
"""

from .claims import Found, Rate, measure, registry, results, select
from .fit import Fit, fit

__all__ = ["Fit", "Found", "Rate", "fit", "measure", "registry", "results", "select"]
