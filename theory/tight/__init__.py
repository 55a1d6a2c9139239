"""The true worst case of one round, by semidefinite programming: how far a bound is from it, and quadratics below it.

    from theory.tight import FedAvg, contraction, bias, largest_step

    print(contraction(FedAvg(lr=0.1, local_steps=5), mu=0.1))
    print(bias(FedAvg(lr=0.1, local_steps=5), mu=0.1))

The worst is taken over all μ-strongly convex, L-smooth functions of the clients (`world` says how), for FedAvg,
FedProx, a server-proximal round and C-FLAG (`rounds`). `certify` solves and returns bounds that do not rest on the
solver's word; `quadratics` has the worst commuting quadratics in closed form; `slack` has what `cfl` says instead.

The Gram formulation is written out here rather than taken from PEPit: clients that are alike fold into one, which
makes any number of them as cheap as two, and bounds that are recomputed from the multipliers need the forms
themselves. PEPit is the yardstick of a test.
"""

from .certify import Certificate, bias, contraction, largest_step, progress
from .quadratics import Worst, nqm_contraction, worst_bias, worst_contraction, worst_fresh_bias
from .rounds import CFlag, FedAvg, FedProx, Round, ServerProx
from .world import Size, size

__all__ = [
    "CFlag",
    "Certificate",
    "FedAvg",
    "FedProx",
    "Round",
    "ServerProx",
    "Size",
    "Worst",
    "bias",
    "contraction",
    "largest_step",
    "nqm_contraction",
    "progress",
    "size",
    "worst_bias",
    "worst_contraction",
    "worst_fresh_bias",
]
