"""One round of task K in one dimension, and every term of `special`'s convergence proof in it, computed exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from ..bounds import special
from ..bounds.special import Setting
from .ledger import Case
from .special_worlds import Bowl, Paths, Rule, gradient, local_steps, one_round
from .worlds import hundredths

SCENE = {
    "M": st.integers(2, 3),
    "N": st.integers(1, 3),
    "K": st.integers(2, 6),
    "E": st.integers(1, 3),
    "L": st.floats(0.1, 10.0),
    "clip": st.floats(0.01, 10.0),
    "sigma": st.sampled_from([0.0, 0.1, 1.0, 10.0]),
    "lam": st.floats(0.01, 100.0),
    "lr_share": st.just(1.0) | hundredths(1, 100),
    "glr_share": st.just(1.0) | hundredths(1, 100),
    "away": hundredths(-100, 100),
    "h": hundredths(-100, 100),
    "b": hundredths(-300, 300),
    **{f"h{m}": hundredths(-100, 100) for m in (1, 2, 3)},
    **{f"b{m}": hundredths(-300, 300) for m in (1, 2, 3)},
}
SCENES = [
    "1 <= N <= M",
    "N * E <= 6",
    "K >= 2",
    "L > 0",
    "clip > 0",
    "sigma >= 0",
    "lam > 0",
    "0 < lr_share <= 1",
    "0 < glr_share <= 1",
    "-1 <= away <= 1",
    "max(abs(h), abs(h1), abs(h2), abs(h3)) <= 1",
    "sigma > 0 or h1 * b1 != 0",  # something happens
]


@dataclass(frozen=True)
class Scene:
    """A round from θ, a share ``away`` of Lemma 4.9's radius from the anchor 0, at a share of Theorem 4.10's steps.

    Clients of task K have curvature h_m L (negative: a dome) and gradients clipped at ``clip``, so that B = clip + σ;
    the K − 1 earlier tasks share one such function. σ_G and σ_T are the spreads at θ itself, the smallest the proof
    can use. now, before, total: ∇f_K, ∇f_{1:K−1}, ∇f_{1:K} at θ. rise: E f_{1:K}(θ⁺) − f_{1:K}(θ). local_change:
    mean_m Σ_e E[∇f_m(θ^e) − ∇f_m(θ)]. changed2 and moved2_last: mean_m Σ_e E|∇f_m(θ^e) − ∇f_m(θ)|² and, for the last
    e, mean_m E|θ^e − θ|². sums2: mean_m E‖t_m‖² of (56). The other names are the proof's.
    """

    setting: Setting
    theta: float
    now: float
    before: float
    rise: float
    mean_move: float
    local_change: float
    changed2: float
    moved2_last: float
    sums2: float
    t51: float
    t6: float
    t7: float
    t8: float

    @property
    def total(self) -> float:
        return self.now + self.before

    @property
    def t5(self) -> float:
        return self.total * (self.mean_move + self.setting.pace * self.now)

    @property
    def t51_bound(self) -> float:
        """The right side of (43)."""
        p, step2 = self.setting, (self.setting.glr * self.setting.lr * self.setting.E) ** 2
        local = 10 * p.lr**2 * p.E * p.L**2 * (p.sigma_L**2 + 6 * p.E * (p.sigma_G**2 + self.now**2))
        return step2 * (local + 2 * p.B**2)

    @classmethod
    def of(cls, case: Case) -> Scene:
        M, N, K, E, L, lam, sigma = (case[k] for k in ("M", "N", "K", "E", "L", "lam", "sigma"))
        B, lr, glr = case["clip"] + sigma, case["lr_share"] / (8 * E * L), case["glr_share"] / (K - 1)
        theta = case["away"] * special.drift(lr, glr, E, B, lam)
        clients = [Bowl(case[f"h{m}"] * L, (case[f"b{m}"],), case["clip"]) for m in range(1, M + 1)]
        earlier = [Bowl(case["h"] * L, (case["b"],), case["clip"])]
        at, here = np.array([[theta]]), [theta]
        now, then = float(gradient(clients, here)[0]), float(gradient(earlier, here)[0])
        spread = max(abs(float(c.grad(here)[0]) - now) for c in clients)
        past = (K - 1) * abs(float(gradient(earlier, [0.0])[0]))
        p = Setting(M, N, K, E, L, B, lam, lr, glr, sigma, spread, abs(now - then), past)

        rule = Rule(lr, glr, E, N, lam, sigma)
        after = one_round(clients, Paths(at, np.ones(1)), np.zeros(1), rule)
        move = after.theta[:, 0] - theta
        bent = np.mean([c.bregman(after.theta, at) for c in clients], axis=0) + (K - 1) * earlier[0].bregman(
            after.theta, at
        )

        paths = [local_steps(c, at, rule)[0][:E] for c in clients]
        slopes = [np.array([c.grad(x)[:, 0, 0] for x in path]) for c, path in zip(clients, paths, strict=True)]
        changes = [s - s[0] for s in slopes]  # local step × noise outcome
        # t_m of (53): Σ_i Σ_e (∇f_m(θ^e) − ∇f_K(θ) + ∇f_i(θ)).
        sums = [K * s.sum(axis=0) - E * K * now + E * (now + (K - 1) * then) for s in slopes]
        means, variances = np.array([s.mean() for s in sums]), np.array([s.var() for s in sums])
        pull = -lam * K / (glr * lr) * theta  # Λ
        sampled = means.var() * (M - N) / (M - 1) / N if M > 1 else 0.0
        bias = np.array([c.sum(axis=0).mean() for c in changes])
        spread2 = np.array([c.sum(axis=0).var() for c in changes])
        t51 = (glr * lr * bias.mean() + lam * theta) ** 2 + (glr * lr) ** 2 * spread2.sum() / M**2
        return cls(
            setting=p,
            theta=theta,
            now=now,
            before=(K - 1) * then,
            rise=float((now + (K - 1) * then) * after.mean(move) + after.mean(bent)),
            mean_move=float(after.mean(move)),
            local_change=float(bias.mean()),
            changed2=float(np.mean([(c**2).mean(axis=1).sum() for c in changes])),
            moved2_last=float(np.mean([((path[-1] - at) ** 2).mean() for path in paths])),
            sums2=float(np.mean(means**2 + variances)),
            t51=float(t51 * K / (glr * lr * E)),
            t6=float(after.mean(move**2)),
            t7=float((pull - means.mean()) ** 2 + sampled + variances.mean() / N),
            t8=float((pull - means.mean()) ** 2 + variances.sum() / M**2),
        )
