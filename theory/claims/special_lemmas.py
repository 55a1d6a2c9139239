"""`special`: Lemmas C.1-C.8."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import strategies as st

from .ledger import Case, Comparison, claim
from .special_worlds import Bowl, Rule, local_steps
from .worlds import draws, hundredths

SHARE = hundredths(1, 100)
ZERO_TO_ONE = hundredths(0, 100)
SIGNED = hundredths(-100, 100)
POINT = hundredths(-300, 300)
WEIGHT = st.floats(0.01, 100.0)


# --- Lemmas C.1 to C.4 ------------------------------------------------------------------------------------------------


@claim(
    "special/lemma-c.1",
    at="Lemma C.1",
    sense="<=",
    verdict="holds",
    why="The triangle inequality; equal quadratics reach it.",
    cases=st.fixed_dictionaries(
        {"L": WEIGHT, "K": st.integers(1, 5), "seed": st.integers(0, 99), "x": POINT, "y": POINT, "clip": WEIGHT}
    ),
    needs=["x != y", "L > 0", "clip > 0"],
)
def smooth_sum(case: Case) -> Comparison:
    """A sum of K L-smooth functions is KL-smooth. Measured: the change of its gradient between two points."""
    rng = np.random.default_rng(case["seed"])
    shapes, centres = rng.choice([1.0, 1.0, -1.0, 0.3], size=case["K"]), rng.normal(size=(case["K"], 1))
    bowls = [Bowl(case["L"] * float(h), tuple(b), case["clip"]) for h, b in zip(shapes, centres, strict=True)]
    change = sum(float((f.grad([case["x"]]) - f.grad([case["y"]]))[0]) for f in bowls)
    return Comparison(abs(change), case["K"] * case["L"] * abs(case["x"] - case["y"]))


VECTORS = {"count": st.integers(1, 5), "seed": st.integers(0, 999), "alike": ZERO_TO_ONE}


def vectors(case: Case) -> np.ndarray:
    rng = np.random.default_rng(case["seed"])
    return np.asarray(case["alike"] * rng.normal(size=3) + (1 - case["alike"]) * rng.normal(size=(case["count"], 3)))


@claim(
    "special/lemma-c.2",
    at="Lemma C.2, (11)",
    sense="<=",
    verdict="holds",
    why="The triangle inequality, reached by parallel vectors.",
    cases=st.fixed_dictionaries(VECTORS),
    needs=["0 <= alike <= 1"],
)
def weighted_norm(case: Case) -> Comparison:
    """‖Σ a_i x_i‖ ≤ Σ a_i ‖x_i‖ for a_i ≥ 0."""
    x = vectors(case)
    a = np.random.default_rng(case["seed"] + 1).exponential(size=case["count"])
    return Comparison(float(np.linalg.norm(a @ x)), float(a @ np.linalg.norm(x, axis=1)))


@claim(
    "special/lemma-c.3",
    at="Lemma C.3, (12)",
    sense="<=",
    verdict="holds",
    why="Jensen's inequality, reached by equal variables.",
    cases=st.fixed_dictionaries(VECTORS),
    needs=["0 <= alike <= 1"],
)
def norm_of_a_sum(case: Case) -> Comparison:
    """E‖x_1 + ... + x_n‖² ≤ n Σ E‖x_i‖², dependent or not. Measured: x_i = ±v_i, the signs equal."""
    x = vectors(case)
    return Comparison(float(np.sum(x.sum(axis=0) ** 2)), case["count"] * float(np.sum(x**2)))


CENTRED = {
    "n": st.integers(1, 4),
    "seed": st.integers(0, 99),
    "shared": ZERO_TO_ONE,
    "rare": st.sampled_from([0.5, 0.1]),
}


def _centred(case: Case, shared: float) -> Comparison:
    """x_i = v_i z_i: z_i of mean 0 and variance 1, with correlation ``shared`` through a common variable."""
    v = np.random.default_rng(case["seed"]).uniform(0.1, 1.0, case["n"])
    z, chance = draws(case["n"] + 1, case["rare"])
    x = v * (math.sqrt(shared) * z[:, :1] + math.sqrt(1 - shared) * z[:, 1:])
    return Comparison(float(chance @ x.sum(axis=1) ** 2), float(np.sum(v**2)))


@claim(
    "special/lemma-c.4",
    at="Lemma C.4, (13)",
    sense="<=",
    verdict="misprint",
    why="Mean zero alone does not do: one variable repeated n times gives n². Independence, or that each has mean "
    "zero given the others before it, is missing; a reader will supply it. (48) then repeats the same noise K times.",
    cases=st.fixed_dictionaries(CENTRED),
    needs=["0 <= shared <= 1"],
    repair="for independent variables (or martingale differences), with equality",
    repaired=lambda case: _centred(case, 0.0),
)
def centred_sum(case: Case) -> Comparison:
    """E‖x_1 + ... + x_n‖² ≤ Σ E‖x_i‖² for variables of mean zero. Measured: by enumeration, correlated variables."""
    return _centred(case, case["shared"])


# --- Lemma C.5 --------------------------------------------------------------------------------------------------------

LOCAL = {
    "E": st.integers(1, 4),
    "L": st.floats(0.1, 10.0),
    "clip": st.floats(0.1, 10.0),
    "sigma": st.sampled_from([0.0, 0.1, 1.0, 5.0]),
    "share": SHARE,
    **{f"h{m}": SIGNED for m in (1, 2)},
    **{f"b{m}": POINT for m in (1, 2)},
}


@claim(
    "special/lemma-c.5",
    at="Lemma C.5, (14)",
    sense="<=",
    verdict="holds",
    why="With room: 5E stands for (E−1)[(1 + 1/(E−1))^E − 1], and for E = 1 the left side is 0 (the proof divides by "
    "E − 1). The sum is over m, not i; (l_1) and (l_2) are named the wrong way round.",
    cases=st.fixed_dictionaries(LOCAL),
    needs=[
        "L > 0",
        "clip > 0",
        "sigma >= 0",
        "0 < share <= 1",
        "abs(h1) <= 1",
        "abs(h2) <= 1",
        "sigma + abs(h1 * b1) > 0",
    ],
)
def local_drift(case: Case) -> Comparison:
    """For γ_L ≤ 1/(8LE), mean_m E‖θ^{t,e}_m − θ^t‖² ≤ 5γ_L²E(σ_L² + 6Eσ_G²) + 30γ_L²E²‖∇f_i(θ^t)‖², e < E.

    Measured: the largest over e for two clients, noise enumerated; σ_G is their spread at θ^t.
    """
    E, lr = case["E"], case["share"] / (8 * case["L"] * case["E"])
    losses = [Bowl(case[f"h{m}"] * case["L"], (case[f"b{m}"],), case["clip"]) for m in (1, 2)]
    start, rule = np.zeros((1, 1)), Rule(lr, 1.0, E, 1, 1.0, case["sigma"])
    paths = [local_steps(loss, start, rule)[0] for loss in losses]
    moved = [np.mean([float(np.mean(path[e] ** 2)) for path in paths]) for e in range(E)]
    g = [float(loss.grad([0.0])[0]) for loss in losses]
    mean, spread2 = (g[0] + g[1]) / 2, (g[0] - g[1]) ** 2 / 4
    right = 5 * lr**2 * E * (case["sigma"] ** 2 + 6 * E * spread2) + 30 * lr**2 * E**2 * mean**2
    return Comparison(float(max(moved)), right)


@claim(
    "special/eq-16",
    at="(16), (l_3)",
    sense="<=",
    verdict="holds",
    why="It falls from 4 at E = 2 to e.",
    cases=st.fixed_dictionaries({"E": st.integers(2, 10**6)}),
    needs=["E > 1"],
)
def compound_growth(case: Case) -> Comparison:
    """(1 + 1/(E−1))^E ≤ 5 for E > 1."""
    return Comparison(math.exp(case["E"] * math.log1p(1 / (case["E"] - 1))), 5.0)


# --- Lemmas C.6 to C.8 ------------------------------------------------------------------------------------------------

SAMPLE = {
    "M": st.integers(2, 5),
    "N": st.integers(1, 5),
    "seed": st.integers(0, 999),
    "alike": ZERO_TO_ONE,
    "G": hundredths(-200, 200),
    "anchor": hundredths(-200, 200),
}
SAMPLED = ["1 <= N <= M", "0 <= alike <= 1"]


def sample(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Client vectors t_m and the vector Λ."""
    rng = np.random.default_rng(case["seed"])
    common = rng.normal(size=2)
    return case["alike"] * common + (1 - case["alike"]) * rng.normal(size=(case["M"], 2)), case["anchor"] * common


def squares(x: np.ndarray) -> float:
    return float(np.sum(x**2))


def pairs(t: np.ndarray) -> float:
    """Σ_{m≠n}‖t_m − t_n‖²."""
    return squares(t[:, None] - t[None])


def _expanded(case: Case, chance: float, joint: float) -> float:
    """The right side of (17) and (19), for clients that are in with ``chance`` and in pairs with ``joint``."""
    (t, anchor), M, G = sample(case), case["M"], case["G"]
    own = (chance * G**2 + joint * (M - 1) * G**2 + chance * G) * squares(t) - joint * G**2 / 2 * pairs(t)
    return own + (1 + M * chance * G) * squares(anchor) - chance * G * squares(t - anchor)


def _balanced(measured: float, claimed: float, scale: float) -> Comparison:
    """Equality up to rounding of terms of size ``scale``."""
    return Comparison(measured + scale, claimed + scale)


def _scale(case: Case) -> float:
    t, anchor = sample(case)
    return 1 + squares(t) + squares(anchor)


@claim(
    "special/lemma-c.6",
    at="Lemma C.6, (17)",
    sense="==",
    verdict="holds",
    why="The polarisation identity, for G of either sign.",
    cases=st.fixed_dictionaries(SAMPLE),
    needs=SAMPLED,
)
def expanded_square(case: Case) -> Comparison:
    """‖Σ G t_m + Λ‖² = (MG²+G)Σ‖t_m‖² − G²/2 Σ_{m≠n}‖t_m−t_n‖² + (1+MG)‖Λ‖² − GΣ‖t_m−Λ‖²."""
    t, anchor = sample(case)
    return _balanced(squares(case["G"] * t.sum(axis=0) + anchor), _expanded(case, 1.0, 1.0), _scale(case))


@claim(
    "special/l-4",
    at="(l_4) after (18), (l_5) after (20)",
    sense="==",
    verdict="misprint",
    why="The left side should be the inner product, as the lines above use it; printed, it holds only if 3‖x − y‖² = "
    "‖x‖² + ‖y‖².",
    cases=st.fixed_dictionaries({k: POINT for k in ("x1", "x2", "y1", "y2")}),
    repair="⟨x, y⟩ = ½[‖x‖² + ‖y‖² − ‖x − y‖²]",
    repaired=lambda case: Comparison(case["x1"] * case["y1"] + case["x2"] * case["y2"] + 100, _polarised(case) + 100),
)
def polarisation(case: Case) -> Comparison:
    """‖x − y‖² = ½[‖x‖² + ‖y‖² − ‖x − y‖²], both sides plus 100."""
    return Comparison((case["x1"] - case["y1"]) ** 2 + (case["x2"] - case["y2"]) ** 2 + 100, _polarised(case) + 100)


def _polarised(case: Case) -> float:
    apart = (case["x1"] - case["y1"]) ** 2 + (case["x2"] - case["y2"]) ** 2
    return (case["x1"] ** 2 + case["x2"] ** 2 + case["y1"] ** 2 + case["y2"] ** 2 - apart) / 2


def _sampled_right(case: Case) -> float:
    M, N = case["M"], case["N"]
    return _expanded(case, N / M, N * (N - 1) / (M * (M - 1)))


def _expected_square(case: Case) -> Comparison:
    """With indicators and the mean over subsets."""
    t, anchor = sample(case)
    subsets = [list(s) for s in itertools.combinations(range(case["M"]), case["N"])]
    mean = np.mean([squares(case["G"] * t[s].sum(axis=0) + anchor) for s in subsets])
    return _balanced(float(mean), _sampled_right(case), _scale(case))


@claim(
    "special/lemma-c.7",
    at="Lemma C.7, (19)",
    sense="==",
    verdict="misprint",
    why="With probabilities P{m ∈ S} = N/M, as printed here and in (28)-(52), the left side is a fixed vector's norm "
    "and misses the variance of the sample. With indicators and the expectation over S the identity is right (for t_m "
    "that do not depend on S, and M ≥ 2).",
    cases=st.fixed_dictionaries(SAMPLE),
    needs=SAMPLED,
    repair="E_S‖Σ G 1{m ∈ S} t_m + Λ‖² on the left",
    repaired=_expected_square,
)
def sampled_square(case: Case) -> Comparison:
    """If N of M clients are drawn without replacement, ‖Σ G P{m∈S} t_m + Λ‖² = (N²G²+NG)/M Σ‖t_m‖²
    − N(N−1)G²/(2M(M−1)) Σ_{m≠n}‖t_m−t_n‖² + (1+NG)‖Λ‖² − NG/M Σ‖t_m−Λ‖².

    Both sides plus the size of the vectors.
    """
    t, anchor = sample(case)
    left = squares(case["G"] * case["N"] / case["M"] * t.sum(axis=0) + anchor)
    return _balanced(left, _sampled_right(case), _scale(case))


@claim(
    "special/lemma-c.8",
    at="Lemma C.8, (21)",
    sense="==",
    verdict="holds",
    why="The proof's first line has −Σ⟨t_m, t_n⟩ where −2Σ⟨t_m, t_n⟩ is meant; the second has it right.",
    cases=st.fixed_dictionaries(SAMPLE),
    needs=SAMPLED,
)
def pairwise_square(case: Case) -> Comparison:
    """Σ_{m≠n}‖t_m − t_n‖² = 2MΣ‖t_m‖² − 2‖Σt_m‖².

    Both sides plus the size of the vectors.
    """
    t, _ = sample(case)
    right = 2 * case["M"] * squares(t) - 2 * squares(t.sum(axis=0))
    return _balanced(pairs(t), right, _scale(case))
