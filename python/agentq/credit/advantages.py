"""Advantages without a tree: returns of rollouts and steps in, one number per row out. Pure NumPy; knows no tokens.

A row is a rollout or a step of one. Columns of labels, integers or strings, say which group, trajectory or anchor it
belongs to. A row with nothing to compare it with has advantage exactly 0, and so has every row of a group whose returns
are all equal up to rounding (ours: verl, verl-agent, Tree-GRPO and TreePO give a group of one the mean 0, and its raw
return becomes its advantage). Rows that training leaves out are dropped afterwards, because they belong to the
baseline.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

ROUNDING = 1e-9  # of a return, relative to it if it is large: 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1


def leave_one_out(
    returns: ArrayLike, groups: ArrayLike, *, ddof: int | None = None, epsilon: float = 1e-6
) -> np.ndarray:
    """`[N]`: each return minus the mean of the others in its group; unbiased, as the baseline ignores the action.

        A_k = R_k - 1/(K-1) * sum_{i != k} R_i = K/(K-1) * (R_k - mean R)

    Args:
        returns: `[N]` in reward units, one per rollout. With one per step, K would count steps.
        groups: `[N]` labels; rollouts of one task are one group.
        ddof, epsilon: as in `group_relative`; ddof makes the estimate biased, since the scale depends on the action.

    Raises:
        ValueError: if a return is not finite, there is not one label per return, or as `group_relative`.

    Source: Ahmadian et al. 2024, arXiv:2402.14740 (RLOO); Chen et al. 2025, arXiv:2502.01600, eq. 3 (LOOP).
    """
    centred = group_relative(returns, groups, ddof=ddof, epsilon=epsilon)
    _, _, count = _grouped(returns, groups)
    advantages: np.ndarray = centred * count / np.maximum(count - 1, 1)
    return advantages


def group_relative(
    returns: ArrayLike, groups: ArrayLike, *, ddof: int | None = None, epsilon: float = 1e-6
) -> np.ndarray:
    """`[N]`: each return minus the mean of its whole group, itself included.

        A_k = R_k - mean R,    divided by std R + epsilon if ddof is given

    With one label for all rows and ddof=1 it whitens a batch.

    Args:
        returns: `[N]` in reward units.
        groups: `[N]` labels.
        ddof: None leaves the scale (Dr. GRPO, GiGPO without std); 0 divides by the population's standard deviation,
            1 by the sample's, as GRPO's implementations do; the paper does not say.
        epsilon: at least 0.

    Raises:
        ValueError: if ddof or epsilon is out of range, or as `leave_one_out`.

    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1.2 (GRPO); Liu et al. 2025, arXiv:2503.20783 (Dr. GRPO).
    """
    if ddof not in (None, 0, 1):
        raise ValueError(f"ddof must be None, 0 or 1; got {ddof}")
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be at least 0; got {epsilon}")
    x, group, count = _grouped(returns, groups)
    centred: np.ndarray = x - np.bincount(group, x)[group] / count
    if ddof is None:
        return centred
    scale = np.sqrt(np.bincount(group, centred**2)[group] / np.maximum(count - ddof, 1))
    advantages: np.ndarray = np.divide(centred, scale + epsilon, out=np.zeros_like(x), where=scale > 0)
    return advantages


def collapsed(returns: ArrayLike, groups: ArrayLike) -> np.ndarray:
    """`[N]` bool: whether the group's returns are all equal, so it gives no gradient. The share is worth monitoring.

    G rollouts of a task with success probability p collapse with probability p^G + (1-p)^G.
    """
    x, group, _ = _grouped(returns, groups)
    same: np.ndarray = np.bincount(group, x != 0)[group] == 0
    return same


def reward_to_go(rewards: ArrayLike, trajectories: ArrayLike, *, discount: float = 1.0) -> np.ndarray:
    """`[S]`: the discounted return from each step, G_t = r_t + discount * G_{t+1} within its trajectory.

    Args:
        rewards: `[S]` one per step; the steps of a trajectory in order, possibly interleaved with others.
        trajectories: `[S]` labels.
        discount: in [0, 1]; 0 leaves each step its own reward.

    Raises:
        ValueError: if discount is outside [0, 1], a reward is not finite or there is not one label per reward.
    """
    r, _, following = _steps(rewards, trajectories)
    _in_unit("discount", discount)
    return _summed_back(r, following, discount)


def gae(
    rewards: ArrayLike,
    values: ArrayLike,
    trajectories: ArrayLike,
    *,
    discount: float = 1.0,
    gae_lambda: float = 1.0,
    final_values: ArrayLike | None = None,
) -> np.ndarray:
    """`[S]`: generalized advantage estimates. Adding `values` gives the targets of a value function.

        delta_t = r_t + discount * V_{t+1} - V_t,    A_t = delta_t + discount * gae_lambda * A_{t+1}

    Args:
        rewards: `[S]` one per step (or token); the steps of a trajectory in order, possibly interleaved with others.
        values: `[S]` V of the history before each step, in reward units.
        trajectories: `[S]` labels.
        discount: in [0, 1].
        gae_lambda: in [0, 1]; 1 is reward-to-go minus V, 0 the one-step error. LOOP's PPO diverged below 1.
        final_values: `[S]` V of the history after each step, read only at the last step of a trajectory: V if it was
            truncated, 0 if it terminated. None: all terminated.

    Raises:
        ValueError: if discount or gae_lambda is outside [0, 1], a number is not finite or a column is too short.

    Source: Schulman et al. 2015, arXiv:1506.02438, eq. 16.
    """
    r, _, following = _steps(rewards, trajectories)
    _in_unit("discount", discount)
    _in_unit("gae_lambda", gae_lambda)
    v = _column("values", values, len(r))
    final = np.zeros(len(r)) if final_values is None else _column("final_values", final_values, len(r))
    last = following == len(r)
    delta = r + discount * np.where(last, final, np.append(v, 0.0)[following]) - v
    return _summed_back(delta, following, discount * gae_lambda)


def gigpo(
    rewards: ArrayLike,
    trajectories: ArrayLike,
    groups: ArrayLike,
    anchors: ArrayLike,
    *,
    discount: float = 0.95,
    step_weight: float = 1.0,
    ddof: int | None = None,
    over: Literal["trajectories", "steps"] = "trajectories",
) -> np.ndarray:
    """`[S]`: group-in-group advantages: the episode relative to its group, plus the step relative to its page.

        A = A_episode(sum of rewards; group) + step_weight * A_step(discounted reward-to-go; group, anchor)

    Both terms are `group_relative` with `ddof`. A step whose page no other step of the group saw has A_step = 0.

    Args:
        rewards: `[S]` one per step; the steps of a trajectory in order.
        trajectories: `[S]` labels.
        groups: `[S]` labels; trajectories of one task are one group.
        anchors: `[S]` labels of the pages acted on, such as `Observation.fingerprint`; equal ones are one anchor.
        discount: discount of the reward-to-go, in [0, 1].
        step_weight: omega, at least 0.
        over: a group's mean episode return is over its "trajectories", as in the paper, or over its "steps", the
            released code's default, which weights long trajectories more.

    Raises:
        ValueError: if an argument is out of range, a column too short, or a trajectory in two groups.

    Source: Feng et al. 2025, arXiv:2505.10978, eqs. 3, 5-8. Their code's page similarity is omitted.
    """
    if not step_weight >= 0:
        raise ValueError(f"step_weight must be at least 0; got {step_weight}")
    to_go = reward_to_go(rewards, trajectories, discount=discount)
    episode = _episode_relative(rewards, trajectories, groups, ddof=ddof, over=over)
    return episode + step_weight * group_relative(to_go, joint_labels(groups, anchors), ddof=ddof)


def joint_labels(first: ArrayLike, second: ArrayLike) -> np.ndarray:
    """`[N]` int64: labels that are equal where both inputs are equal, for groups within groups."""
    n = len(np.asarray(first))
    major, minor = _labels("labels", first, n), _labels("labels", second, n)
    return _labels("labels", major * (minor.max(initial=0) + 1) + minor, n)


def _episode_relative(
    rewards: ArrayLike, trajectories: ArrayLike, groups: ArrayLike, *, ddof: int | None, over: str
) -> np.ndarray:
    """`[S]`: the episode part of GiGPO."""
    if over not in ("trajectories", "steps"):
        raise ValueError(f"over must be 'trajectories' or 'steps'; got {over!r}")
    r, trajectory, _ = _steps(rewards, trajectories)
    group = _labels("groups", groups, len(r))
    if joint_labels(trajectory, group).max(initial=0) > trajectory.max(initial=0):
        raise ValueError("a trajectory must be in one group; got one in two")
    total = np.bincount(trajectory, r)
    if over == "steps":
        return group_relative(total[trajectory], group, ddof=ddof)
    _, first = np.unique(trajectory, return_index=True)
    advantages: np.ndarray = group_relative(total, group[first], ddof=ddof)[trajectory]
    return advantages


def _grouped(returns: ArrayLike, groups: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns minus their group's minimum (exactly 0 up to rounding), the group and its size, all `[N]`."""
    x = _column("returns", returns)
    group = _labels("groups", groups, len(x))
    least = np.full(len(x), np.inf)
    np.minimum.at(least, group, x)
    return unrounded(x - least[group], x), group, np.bincount(group)[group]


def unrounded(difference: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The differences, exactly 0 where rounding alone explains them in returns `of` this size."""
    found: np.ndarray = np.where(np.abs(difference) <= ROUNDING * np.maximum(1.0, np.abs(of)), 0.0, difference)
    return found


def _steps(rewards: ArrayLike, trajectories: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards, trajectory, and index of the next step in it (S if there is none), all `[S]`."""
    r = _column("rewards", rewards)
    trajectory = _labels("trajectories", trajectories, len(r))
    following = np.full(len(r), len(r))
    order = np.argsort(trajectory, kind="stable")
    same = trajectory[order[:-1]] == trajectory[order[1:]]
    following[order[:-1][same]] = order[1:][same]
    return r, trajectory, following


def _summed_back(x: np.ndarray, following: np.ndarray, factor: float) -> np.ndarray:
    """`[S]`: out_t = x_t + factor * out of the next step, which comes later in the column."""
    out = np.zeros(len(x) + 1)  # the last entry follows the last step of every trajectory
    for t in reversed(range(len(x))):
        out[t] = x[t] + factor * out[following[t]]
    return out[:-1]


def _column(name: str, values: ArrayLike, length: int | None = None) -> np.ndarray:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or length not in (None, len(column)):
        raise ValueError(f"{name} must be [{'N' if length is None else length}]; got {list(column.shape)}")
    if not np.isfinite(column).all():
        raise ValueError(f"{name} must be finite; got {column[~np.isfinite(column)][0]}")
    return column


def _labels(name: str, labels: ArrayLike, length: int) -> np.ndarray:
    """Labels as 0, 1, .. `[length]`."""
    column = np.asarray(labels)
    if column.shape != (length,):
        raise ValueError(f"{name} must have one entry per row ({length}); got {list(column.shape)}")
    index: np.ndarray = np.unique(column, return_inverse=True)[1]
    return index


def _in_unit(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be in [0, 1]; got {value}")
