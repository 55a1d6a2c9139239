"""`special`: the displayed steps of the proofs of Theorems 4.7 and 4.10, (28)-(61)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from ..bounds import special
from ..bounds.special import Setting
from .ledger import Case, Comparison, claim
from .special_lemmas import SAMPLE, SAMPLED, VECTORS, pairs, sample, squares, vectors
from .special_scene import SCENE, SCENES, Scene
from .special_worlds import Bowl, Paths, Ramp, Rule, one_round
from .worlds import draws, hundredths

SHARE = hundredths(1, 100)
ZERO_TO_ONE = hundredths(0, 100)
SIGNED = hundredths(-100, 100)
POINT = hundredths(-300, 300)
WEIGHT = st.floats(0.01, 100.0)


# --- Proof of Theorem 4.7 ---------------------------------------------------------------------------------------------

RAMPS = {
    "lam": st.floats(0.01, 3.0),
    "step": hundredths(1, 100),
    "L": st.floats(0.1, 10.0),
    "t": st.integers(1, 3),
    **{f"h{m}": SIGNED for m in (1, 2)},
    **{f"at{m}": ZERO_TO_ONE for m in (1, 2)},
}


def _two_ramps(case: Case) -> tuple[float, float, float]:
    """Two clients, one sampled a round, E = 1, all gradients in [0, 1]: the three sizes of (29) and (30), exactly.

    T_1 with a new sample each round; mean_m E‖t_m‖², as (29) ends; t/M ΣΣE‖w_τ g‖², as (30) goes on. Weights
    (1+λ)^{τ−t}.
    """
    slopes = [case[f"h{m}"] * case["L"] for m in (1, 2)]
    losses = [Ramp(h, (1.0,), -case[f"at{m}"] / h if h else 0.0, 1.0) for m, h in enumerate(slopes, 1)]
    t, damp, theta, total = case["t"], 1 / (1 + case["lam"]), np.zeros(1), np.zeros(1)
    own, squares = np.zeros((2, 1)), np.zeros(1)
    for tau in range(t):
        g, weight = np.array([f.grad(theta[:, None])[:, 0] for f in losses]), damp ** (t - tau)
        own, squares = own + weight * g, squares + weight**2 * (g**2).mean(axis=0)
        total = np.concatenate([total + weight * g[0], total + weight * g[1]])
        theta = np.concatenate([special.server_prox(theta - case["step"] * x, np.zeros(1), case["lam"]) for x in g])
        own, squares = np.concatenate([own, own], axis=1), np.tile(squares, 2)
    return float(np.mean(total**2)), float(np.mean(own**2)), t * float(np.mean(squares))


def _one_sample_for_all(case: Case) -> Comparison:
    """(29): T_1 ≤ mean_m E‖t_m‖², with t_m a client's sum over all rounds."""
    first, own, _ = _two_ramps(case)
    return Comparison(first, own)


@claim(
    "special/eq-29",
    at="(29), to bound T_1 in (30)",
    sense="<=",
    verdict="gap",
    why="Lemma C.7 is applied to t_m, a client's gradients summed over all rounds, as if one sample served every "
    "round. Samples are drawn anew: for M = 2, N = 1, t = 2 the excess is ½w_0w_1(a_1 − a_2)(b_2 − b_1), a_m the "
    "first gradients and b_m the second after the other client's move, and it can be positive. (30) survives by "
    "taking the rounds apart first (Lemma C.3) and sampling in each.",
    cases=st.fixed_dictionaries(RAMPS),
    needs=["lam > 0", "L > 0", "step > 0"],
    step=_one_sample_for_all,
    repair="T_1 ≤ t Σ_τ w_τ² E‖mean over S^τ‖² ≤ (t/M) Σ_τ Σ_m w_τ² E‖Σ_e g^{τ,e}_m‖²",
)
def second_moment_of_the_move(case: Case) -> Comparison:
    """T_1 = E‖(1/N)Σ_τ w_τ Σ_{m∈S^τ} Σ_e g‖² ≤ (Et/M) ΣΣΣ E‖w_τ g‖², w_τ the damping of round τ.

    Step: T_1 ≤ (1/M) Σ E‖t_m‖². Measured: T_1 for two clients with aligned gradients, all samples enumerated.
    """
    first, _, apart = _two_ramps(case)
    return Comparison(first, apart)


STEPS = {
    "K": st.integers(2, 6),
    "M": st.integers(1, 10),
    "N": st.integers(1, 10),
    "E": st.integers(1, 10),
    "t": st.integers(1, 50),
    "lam": st.floats(0.001, 100.0),
    "L": WEIGHT,
    "B": WEIGHT,
    "sigma": ZERO_TO_ONE.map(lambda x: 1 - 0.99 * x),
    "eps": SHARE,
    "past": WEIGHT,
}
STEPPING = ["1 <= N <= M", "0 < eps < 1", "lam > 0", "L > 0", "B > 0", "past > 0", "sigma > 0"]


def _largest(case: Case) -> tuple[float, float]:
    lr = special.transfer_step(
        case["eps"], case["past"], case["B"], case["L"], case["E"], case["t"], case["M"], case["lam"]
    )
    return lr, 1 / (math.sqrt(case["N"]) * (case["K"] - 1))


def _t21(case: Case, extra: float) -> Comparison:
    lr, glr = _largest(case)
    left = (case["K"] - 1) / 2 * case["L"] * (glr * lr) ** 2 * case["E"] * case["t"] / case["M"]
    right = glr * lr / (case["M"] * math.sqrt(case["N"])) * extra * (case["K"] - 1) * glr
    return Comparison(left, right * lr * case["L"] * case["E"] * case["t"] / 2)


@claim(
    "special/eq-32",
    at="(32), first line",
    sense="==",
    verdict="misprint",
    why="A factor √N is missing: 1/√N has been taken out and (K−1)γ_G left as it was. The second line is right, since "
    "√N(K−1)γ_G ≤ 1, and so is the rest of the chain.",
    cases=st.fixed_dictionaries(STEPS),
    needs=STEPPING,
    repair="γ_Gγ_L/(M√N) · √N(K−1)γ_G · γ_LLEt/2",
    repaired=lambda case: _t21(case, math.sqrt(case["N"])),
)
def descent_share(case: Case) -> Comparison:
    """T_21 = γ_Gγ_L/(M√N) · (K−1)γ_G · γ_LLEt/2 · ΣΣΣ‖w∇f‖². Compared: the factors before the sum."""
    return _t21(case, 1.0)


@claim(
    "special/eq-33",
    at="(33), (a_4) and (a_6)",
    sense="<=",
    verdict="holds",
    why="A geometric series, reached as t grows.",
    cases=st.fixed_dictionaries(STEPS),
    needs=STEPPING,
)
def squared_weights(case: Case) -> Comparison:
    """Σ_{τ<t} (1+λ)^{−2(τ+1)} ≤ 1/(λ² + 2λ)."""
    lam = case["lam"]
    return Comparison(math.fsum((1 + lam) ** (-2.0 * (tau + 1)) for tau in range(case["t"])), 1 / (lam**2 + 2 * lam))


@claim(
    "special/eq-34",
    at="(34), (a_7)",
    sense="==",
    verdict="holds",
    why="Equality at the largest steps; smaller ones only lower the left side.",
    cases=st.fixed_dictionaries(STEPS),
    needs=STEPPING,
)
def noise_share(case: Case) -> Comparison:
    """(K−1)L γ_G²γ_L²E²σ_L²t/(2(λ²+2λ)) is the correction of (7) when both steps are at their limits."""
    lr, glr = _largest(case)
    K, E, t, N = case["K"], case["E"], case["t"], case["N"]
    left = (K - 1) / 2 * case["L"] * (glr * lr * E * case["sigma"]) ** 2 * t / (case["lam"] ** 2 + 2 * case["lam"])
    sizes = (case["B"], case["L"], E, t, case["M"], N, K)
    return Comparison(left, special.transfer_correction(case["eps"], case["past"], case["sigma"], *sizes))


# --- Proof of Theorem 4.10: one round ---------------------------------------------------------------------------------


@claim(
    "special/eq-39",
    at="(39)",
    sense="<=",
    verdict="holds",
    why="The descent lemma with Lemma C.1, rearranged; quadratics reach it.",
    cases=st.fixed_dictionaries(SCENE),
    needs=SCENES,
)
def descent(case: Case) -> Comparison:
    """E f_{1:K}(θ⁺) ≤ f_{1:K}(θ) − c‖∇f_K‖² − cT_4 + T_5 + KL/2 T_6, c = γ_Gγ_LE/(1+λ), one round exactly.

    Both sides less f_{1:K}(θ), plus the sizes of the terms.
    """
    s = Scene.of(case)
    terms = [-s.setting.pace * s.now**2, -s.setting.pace * s.before * s.now, s.t5, s.setting.K * s.setting.L / 2 * s.t6]
    sizes = sum(abs(x) for x in terms)
    return Comparison(s.rise + sizes, sum(terms) + sizes)


@claim(
    "special/eq-40",
    at="(40), (c_2)-(c_4)",
    sense="<=",
    verdict="holds",
    why="‖x + y‖² ≤ 2‖x‖² + 2‖y‖², smoothness and Lemma 4.9, whose bound holds on every path. f_{1:K−1} is "
    "(K−1)L-smooth, as the formula has it, not (L−1)-smooth as the text under it says.",
    cases=st.fixed_dictionaries(SCENE),
    needs=SCENES,
)
def alignment_of_tasks(case: Case) -> Comparison:
    """T_4 = ⟨∇f_{1:K−1}, ∇f_K⟩ ≥ ½‖∇f_{1:K}‖² − ½‖∇f_K‖² − L²(K−1)²γ_G²γ_L²E²B²/λ² − ‖∇f_{1:K−1}(θ^0)‖².

    Measured: ½‖∇f_{1:K}‖² − ½‖∇f_K‖² − T_4, which is ½‖∇f_{1:K−1}‖². Claimed: the last two terms.
    """
    s, p = Scene.of(case), Scene.of(case).setting
    far = (p.L * (p.K - 1) * special.drift(p.lr, p.glr, p.E, p.B, p.lam)) ** 2
    return Comparison((s.total**2 - s.now**2) / 2 - s.before * s.now, far + p.past**2)


@claim(
    "special/eq-41",
    at="(41)",
    sense="==",
    verdict="holds",
    why="The mean over samples is the mean over clients, and clients start from θ^t.",
    cases=st.fixed_dictionaries(SCENE),
    needs=SCENES,
)
def mean_move(case: Case) -> Comparison:
    """E[θ⁺ − θ] + c∇f_K = (1+λ)^{−1}E[−γ_Gγ_L mean_m Σ_e(∇f_m(θ^e) − ∇f_m(θ)) + λ(θ^0 − θ)], c as in (39).

    Both sides plus 2c(B + λ‖θ^0 − θ‖). Measured: all samples and noises of one round enumerated.
    """
    s = Scene.of(case)
    p = s.setting
    scale = 2 * p.pace * (p.B + p.lam * abs(s.theta))
    right = (-p.glr * p.lr * s.local_change - p.lam * s.theta) / (1 + p.lam)
    return Comparison(s.mean_move + p.pace * s.now + scale, right + scale)


def _t51_with_its_factor(case: Case) -> Comparison:
    """K/(γ_Gγ_LE) times the printed bound."""
    s = Scene.of(case)
    return Comparison(s.t51, s.t51_bound * s.setting.K / (s.setting.glr * s.setting.lr * s.setting.E))


@claim(
    "special/eq-43",
    at="(43) against (42)",
    sense="<=",
    verdict="misprint",
    why="By (42) T_51 has the factor K/(γ_Gγ_LE), which (43) leaves out and (45) has again.",
    cases=st.fixed_dictionaries(SCENE),
    needs=SCENES,
    repair="K/(γ_Gγ_LE) before the right side",
    repaired=_t51_with_its_factor,
)
def second_moment_of_the_bias(case: Case) -> Comparison:
    """T_51 ≤ 10γ_G²γ_L⁴E³L²σ_L² + 60γ_G²γ_L⁴E⁴L²(σ_G² + ‖∇f_K‖²) + 2γ_G²γ_L²E²B², T_51 as (42) defines it."""
    s = Scene.of(case)
    return Comparison(s.t51, s.t51_bound)


@claim(
    "special/eq-45",
    at="(45), from (42)-(44)",
    sense="<=",
    verdict="holds",
    why="With the factor that (43) leaves out, and ∇f_i where the second line of (44) prints f_i.",
    cases=st.fixed_dictionaries(SCENE),
    needs=SCENES,
)
def bias_term(case: Case) -> Comparison:
    """T_5 ≤ c‖∇f_{1:K}‖²/(2K) + 5cγ_L²KEL²(σ_L² + 6Eσ_G² + 6E‖∇f_K‖²) + cKB² − T_52/(2(1+λ)), c as in (39).

    Measured: T_5 + T_52/(2(1+λ)). Claimed: the rest.
    """
    s = Scene.of(case)
    p, c = s.setting, s.setting.pace
    noise = p.sigma_L**2 + 6 * p.E * (p.sigma_G**2 + s.now**2)
    right = c * s.total**2 / (2 * p.K) + 5 * c * p.lr**2 * p.K * p.E * p.L**2 * noise + c * p.K * p.B**2
    return Comparison(s.t5 + p.glr * p.lr / (p.E * p.K) * s.t8 / (2 * (1 + p.lam)), right)


def _t61(case: Case, power: int) -> Comparison:
    """E‖γ_Gγ_L/N Σ_i Σ_{m∈S} Σ_e noise‖², all noises enumerated, for N clients."""
    z, chance = draws(case["N"] * case["E"], case["rare"])
    total = case["K"] * case["sigma"] * z.sum(axis=1) / case["N"]
    right = case["E"] * float(case["K"]) ** power * case["sigma"] ** 2 / case["N"]
    return Comparison(case["step"] ** 2 * float(chance @ total**2), case["step"] ** 2 * right)


@claim(
    "special/eq-48",
    at="(48), and σ_L² in Ψ",
    sense="<=",
    verdict="refuted",
    why="The summand does not depend on i: the sum over the K tasks repeats one noise K times and its square has K², "
    "not K. With the chance N/M for the sample, as printed, the left side has K²/M, still above K/N when KN > M. The "
    "term 3γ_Gγ_LLσ_L²/(2N(1+λ)) of Ψ is K times too small for what the proof shows; Theorem 4.10 survives that "
    "(special/thm-4.10).",
    cases=st.fixed_dictionaries(
        {
            "K": st.integers(1, 6),
            "N": st.integers(1, 3),
            "E": st.integers(1, 3),
            "sigma": WEIGHT,
            "step": SHARE,
            "rare": st.sampled_from([0.5, 0.1]),
        }
    ),
    needs=["sigma > 0", "step > 0"],
    repair="T_61 ≤ γ_G²γ_L²EK²σ_L²/N, and 3Kγ_Gγ_LLσ_L²/(2N(1+λ)) in Ψ",
    repaired=lambda case: _t61(case, 2),
)
def repeated_noise(case: Case) -> Comparison:
    """T_61 = E‖γ_Gγ_L/N Σ_{i≤K} Σ_{m∈S} Σ_e (g − ∇f_{K,m})‖² ≤ γ_G²γ_L²EKσ_L²/N.

    ``step`` is γ_Gγ_L.
    """
    return _t61(case, 1)


@claim(
    "special/eq-50",
    at="(50)",
    sense="<=",
    verdict="holds",
    why="Nothing depends on m or e, and one of the K differences is zero; reached when all earlier tasks agree.",
    cases=st.fixed_dictionaries(VECTORS | {"E": st.integers(1, 5), "step": SHARE}),
    needs=["0 <= alike <= 1", "step > 0"],
)
def spread_of_tasks(case: Case) -> Comparison:
    """T_63 = ‖γ_Gγ_L Σ_i Σ_e (∇f_K − ∇f_i)‖² ≤ γ_G²γ_L²(K−1)²E²σ_T².

    ``count`` is K − 1, ``step`` γ_Gγ_L.
    """
    apart = vectors(case)
    worst = float(np.max(np.sum(apart**2, axis=1)))
    scale = (case["step"] * case["E"]) ** 2
    return Comparison(scale * squares(apart.sum(axis=0)), scale * case["count"] ** 2 * worst)


def _move2(case: Case, power: int) -> Comparison:
    s = Scene.of(case)
    p, step = s.setting, s.setting.glr * s.setting.lr
    noise = step**2 * p.E * float(p.K) ** power * p.sigma_L**2 / p.N
    tasks = (step * (p.K - 1) * p.E * p.sigma_T) ** 2
    return Comparison(s.t6, 3 * (noise + tasks + step**2 * s.t7) / (p.K * (1 + p.lam)) ** 2)


@claim(
    "special/eq-51",
    at="(51)",
    sense="<=",
    verdict="refuted",
    why="Through (48). Where all gradients vanish only noise moves the model, by γ_G²γ_L²Eσ_L²/(N(1+λ)²), and (51) "
    "allows 3/K of that: too little from K = 4 on.",
    cases=st.fixed_dictionaries(SCENE),
    needs=SCENES,
    repair="3γ_G²γ_L²Eσ_L²/(N(1+λ)²) for the first term",
    repaired=lambda case: _move2(case, 2),
)
def size_of_the_move(case: Case) -> Comparison:
    """T_6 = E‖θ⁺ − θ‖² ≤ 3γ_G²γ_L²Eσ_L²/(NK(1+λ)²) + 3γ_G²γ_L²(K−1)²E²σ_T²/(K²(1+λ)²) + 3γ_G²γ_L²/(K²(1+λ)²) T_62.

    Measured: one round, all samples and noises enumerated.
    """
    return _move2(case, 1)


@claim(
    "special/eq-55",
    at="(53)-(55)",
    sense="<=",
    verdict="holds",
    why="(53) and (54) are Lemmas C.7 and C.6 at G = −1/N and −1/M; (55) is T_8 ≥ 0, an equality when Λ is the mean.",
    cases=st.fixed_dictionaries(SAMPLE),
    needs=SAMPLED,
)
def spread_around_the_anchor(case: Case) -> Comparison:
    """Σ_{m≠n}‖t_m − t_n‖² ≤ 2M Σ‖t_m − Λ‖² for any Λ."""
    t, anchor = sample(case)
    return Comparison(pairs(t), 2 * case["M"] * squares(t - anchor))


def _size_of_the_client_sums(case: Case) -> Comparison:
    """The end of (56): mean_m E‖t_m‖², noise enumerated, against its bound."""
    s = Scene.of(case)
    p, E2 = s.setting, s.setting.E**2
    local = 20 * p.E * E2 * (p.K * p.L * p.lr) ** 2 * (p.sigma_L**2 + 6 * p.E * p.sigma_G**2)
    own = (120 * E2**2 * (p.L * p.K * p.lr) ** 2 + 4 * E2 * p.K**2) * s.now**2
    return Comparison(s.sums2, local + own + 4 * E2 * (p.K**2 * p.sigma_G**2 + (p.K - 1) ** 2 * p.sigma_T**2))


@claim(
    "special/eq-56",
    at="(56), (c_9)",
    sense="<=",
    verdict="misprint",
    why="(c_9) loses the sum over the local steps e, which (c_10) has again as a factor E, so that the end of (56) is "
    "right. (c_10) is Lemma C.5, not Lemma 4.9.",
    cases=st.fixed_dictionaries(SCENE),
    needs=SCENES,
    repair="4EK²L² Σ_m Σ_e E‖θ^{t,e} − θ^t‖² in (c_9)",
    repaired=_size_of_the_client_sums,
)
def lost_epochs(case: Case) -> Comparison:
    """Smoothness bounds EK² Σ_e E‖∇f_m(θ^e) − ∇f_m(θ)‖² by EK²L² E‖θ^e − θ‖², without a sum over e on the right.

    Measured: the left side, mean over clients, noise enumerated. Claimed: the right side with the last e. Corrected:
    the end of (56), a bound on mean_m E‖t_m‖².
    """
    s = Scene.of(case)
    p = s.setting
    return Comparison(p.E * p.K**2 * s.changed2, p.E * p.K**2 * p.L**2 * s.moved2_last)


PARTIAL = SAMPLE | {"K": st.integers(2, 6), "E": st.integers(1, 10), "share": SHARE, "lam": WEIGHT, "L": WEIGHT}


@claim(
    "special/eq-58",
    at="(57)-(58)",
    sense="<=",
    verdict="holds",
    why="The coefficient of Σ‖t_m − t_n‖² is not negative for γ_Gγ_L ≤ (1+λ)/(3EL), so (55) may be put in; that is "
    "what the condition is for. (One line prints 3γ_G²γ_L² without its L.)",
    cases=st.fixed_dictionaries(PARTIAL),
    needs=[*SAMPLED, "K >= 2", "0 < share <= 1", "lam > 0", "L > 0"],
)
def sampling_against_descent(case: Case) -> Comparison:
    """3γ²L/(2K(1+λ)²) T_7 − γ/(2(1+λ)EK) T_8 ≤ 3γ²L/(K(1+λ)²) · (M−N)/(MN(M−1)) · (Σ‖t_m‖² + M‖Λ‖²), γ = γ_Gγ_L.

    Measured: T_7 by enumeration of samples. Both sides plus 3γ²L/(2K(1+λ)²)(mean‖t_m‖² + ‖Λ‖²).
    """
    (t, anchor), M, N, K = sample(case), case["M"], case["N"], case["K"]
    lam, L, E = case["lam"], case["L"], case["E"]
    step = case["share"] * (1 + lam) / (3 * E * L)
    lead = 3 * step**2 * L / (2 * K * (1 + lam) ** 2)
    subsets = [list(s) for s in itertools.combinations(range(M), N)]
    t7 = float(np.mean([squares(anchor - t[s].mean(axis=0)) for s in subsets]))
    left = lead * t7 - step / (2 * (1 + lam) * E * K) * squares(anchor - t.mean(axis=0))
    size = squares(t) / M + squares(anchor)
    return Comparison(left + lead * size, 2 * lead * (M - N) / (N * (M - 1)) * size + lead * size)


# --- Proof of Theorem 4.10: what is left ------------------------------------------------------------------------------


@claim(
    "special/eq-60",
    at="(60), one round",
    sense="<=",
    verdict="holds",
    why="Its derivation uses (48) and (c_12), but KB² alone outweighs what they lose; see special/thm-4.10.",
    cases=st.fixed_dictionaries(SCENE),
    needs=SCENES,
)
def one_round_progress(case: Case) -> Comparison:
    """E f_{1:K}(θ⁺) ≤ f_{1:K}(θ) − ½c(1 − 1/K)‖∇f_{1:K}‖² + ½c(1 − 1/K)Ψ, c = γ_Gγ_LE/(1+λ).

    Measured: E f_{1:K}(θ⁺) − f_{1:K}(θ) + ½c(1 − 1/K)‖∇f_{1:K}‖², one round enumerated.
    """
    s = Scene.of(case)
    c = s.setting.pace * (1 - 1 / s.setting.K) / 2
    return Comparison(s.rise + c * s.total**2, c * sum(special.residual(s.setting).values()))


def _dropped_gradient(case: Case) -> Comparison:
    """What (c_12) needs: 30Kγ_L²L²E² + 3γ_Gγ_L(M−N)L/((1+λ)N(M−1)) (120E³L²Kγ_L² + 4EK) ≤ ½."""
    return Comparison(special.spent(Scene.of(case).setting), 0.5)


def _stricter_steps(case: Case) -> Comparison:
    """With γ_L ≤ 1/(EL√(120K)) and γ_Gγ_L ≤ (1+λ)N(M−1)/(12(M−N)EL(4K+1)) as well."""
    s = Scene.of(case).setting
    s = replace(s, lr=min(s.lr, 1 / (s.E * s.L * math.sqrt(120 * s.K))))
    if s.missing > 0:
        s = replace(s, glr=min(s.glr, (1 + s.lam) / (12 * s.missing * s.E * s.L * (4 * s.K + 1) * s.lr)))
    return Comparison(special.spent(s), 0.5)


@claim(
    "special/c12",
    at="(c_12) under (60), against the conditions of Theorem 4.10",
    sense="<=",
    verdict="gap",
    why="The proof says what (c_12) needs, the theorem does not ask for it: at its largest γ_L = 1/(8EL) the first "
    "part alone is 30K/64, above 1/2 for every K ≥ 2, even with all clients. (60) survives: KB² outweighs what is "
    "dropped. (The text's version has M before both summands of the last bracket, which (60) does not need: stricter "
    "still.)",
    cases=st.fixed_dictionaries(SCENE),
    needs=SCENES,
    step=_dropped_gradient,
    repair="Add γ_L ≤ 1/(EL√(120K)) and γ_Gγ_L ≤ (1+λ)N(M−1)/(12(M−N)EL(4K+1)).",
    repaired=_stricter_steps,
)
def progress_without_current_gradient(case: Case) -> Comparison:
    """The steps of Theorem 4.10 let the terms with ‖∇f_K‖² be dropped from (60).

    Statement: (60) without them, one round. Step: the condition under which the proof drops them.
    """
    return one_round_progress(case)


SUMMED = {
    "K": st.integers(2, 5),
    "E": st.integers(1, 3),
    "T": st.integers(1, 60),
    "L": st.floats(0.1, 10.0),
    "B": st.floats(0.1, 10.0),
    "lam": WEIGHT,
    "lr_share": SHARE,
    "glr_share": SHARE,
    "centre": POINT,
    "past": POINT,
}


def _summed(case: Case, times: float) -> Comparison:
    """(61) for clipped quadratics without noise and with equal clients: the constants counted ``times`` times."""
    K, E, L, B = case["K"], case["E"], case["L"], case["B"]
    earlier, current = Bowl(L, (case["past"],), B), Bowl(L, (case["centre"],), B)
    lr, glr = case["lr_share"] / (8 * E * L), case["glr_share"] / (K - 1)
    at_start = (K - 1) * float(earlier.grad([0.0])[0])
    s = Setting(2, 2, K, E, L, B, case["lam"], lr, glr, 0.0, 0.0, 2 * B, abs(at_start))
    points, rule = [np.zeros((1, 1))], Rule(lr, glr, E, 1, case["lam"])
    for _ in range(case["T"]):
        points.append(one_round([current], Paths(points[-1], np.ones(1)), np.zeros(1), rule).theta)
    x = np.concatenate(points)
    value = (K - 1) * earlier.value(x) + current.value(x)
    slope = ((K - 1) * earlier.grad(x) + current.grad(x))[:-1, 0]
    c = s.pace * (1 - 1 / K) / 2
    constants = c * sum(special.residual(s).values())
    return Comparison(c * float(np.sum(slope**2)) + float(value[-1]), float(value[0]) + times * constants)


@claim(
    "special/eq-61",
    at="(61)",
    sense="<=",
    verdict="misprint",
    why="T inequalities are added and the constants stand there once. The next display divides by T as if they stood "
    "there T times, which is right.",
    cases=st.fixed_dictionaries(SUMMED),
    needs=["K >= 2", "0 < lr_share <= 1", "0 < glr_share <= 1", "lam > 0", "L > 0", "B > 0"],
    repair="T times the terms with γ_Gγ_LE/(1+λ) on the right",
    repaired=lambda case: _summed(case, case["T"]),
)
def summed_progress(case: Case) -> Comparison:
    """Σ_{t<T} ½c(1 − 1/K)‖∇f_{1:K}(θ^t)‖² ≤ f_{1:K}(θ^0) − f_{1:K}(θ^T) + ½c(1 − 1/K)Ψ, c = γ_Gγ_LE/(1+λ).

    Both sides plus f_{1:K}(θ^T). Measured: runs without noise, equal clients.
    """
    return _summed(case, 1.0)
