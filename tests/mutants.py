"""One-line faults in the Python that decides what is learnt, from prompt to step. Each file's tests must fail on each.

    python -m tests.mutants [--only TEXT] [--json]

A fault lives in memory, in a child process of its own; a fault that no test notices ends the program with 1.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest
import torch  # noqa: F401  here, so that no child has to

from tests.mutation import Fault, attempt, chosen

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore:Module already imported"]  # hypothesis is, before pytest
PYTEST += ["--timeout=0"]  # pytest-timeout's timer would take the place of the alarm

LINES: dict[tuple[str, str], list[tuple[str, str]]] = {  # module, its tests: what stands there, what is put there
    ("credit.advantages", "test_credit_advantages test_credit_trees"): [
        ("centred * count / np.maximum(count - 1, 1)", "centred * count / np.maximum(count, 1)"),
        ("groups, ddof=ddof, epsilon=epsilon)\n    _, _, count", "groups, epsilon=epsilon)\n    _, _, count"),
        ("np.bincount(group, x)[group] / count", "x.mean()"),
        ("    if ddof is None:\n        return centred", "    if not ddof:\n        return centred"),
        ("np.maximum(count - ddof, 1)", "count"),
        ("out=np.zeros_like(x), where=scale > 0)", "out=np.zeros_like(x))"),
        ("scale + epsilon", "scale"),
        ("x - least[group], group", "x, group"),
        ("np.minimum.at(least, group, x)", "least[:] = 0"),
        ("same: np.ndarray = np.bincount(group, x != 0)[group] == 0", "same: np.ndarray = x == 0"),
        ("_summed_back(r, following, discount)", "_summed_back(r, following, 1.0)"),
        ("out[t] = x[t] + factor * out[following[t]]", "out[t] = factor**t * x[t] + out[following[t]]"),
        ("following, discount * gae_lambda", "following, gae_lambda"),
        ("following, discount * gae_lambda", "following, discount"),
        ("np.where(last, final,", "np.where(last, 0.0,"),
        ("np.where(last, final,", "np.where(True, final,"),
        ("[following]) - v", "[following])"),
        ("r + discount * np.where(", "r + np.where("),
        ("following[order[:-1][same]] = order[1:][same]", "following[order[:-1]] = order[1:]"),
        ('kind="stable")', 'kind="stable")[::-1]'),
        ("episode + step_weight *", "episode +"),
        ("joint_labels(groups, anchors), ddof=ddof)", "anchors, ddof=ddof)"),
        ("trajectories, discount=discount)\n    episode", "trajectories, discount=1)\n    episode"),
        ('if over == "steps":', "if True:"),
        ('if over == "steps":', "if False:"),
        ("joint_labels(trajectory, group).max(initial=0)", "joint_labels(trajectory, group).max(initial=1)"),
        ("trajectory.max(initial=0)", "trajectory.max(initial=1)"),
        ("total = np.bincount(trajectory, r)", "total = np.bincount(trajectory, r) / np.bincount(trajectory)"),
        ("if joint_labels(trajectory, group).max(initial=0) > trajectory", "if group.max(initial=0) > trajectory"),
        ("range(1, history + 2)", "range(1, history + 1)"),
        ("(k + 1.0) ** alpha * (term != 0)", "(k + 1.0) ** alpha"),
        ("(k + 1.0) ** alpha", "k ** alpha"),
        ("rows = rows[np.isin(before[rows], rows)]", "pass"),
        ("key = joint_labels(key[before[:-1]], page)", "key = page"),
        ("major * (minor.max(initial=0) + 1) + minor", "major + minor"),
    ],
    ("credit.trees", "test_credit_trees"): [
        ("range(len(above) - 1, -1, -1)", "range(len(above))"),
        ("total[above[node]] += total[node]", "total[above[node]] = total[node]"),
        ("np.bincount(end, value, minlength", "np.bincount(end, minlength"),
        ("out=np.zeros_like(total), where=count > 0)", "out=np.zeros_like(total), where=count > 1)"),
        ("joint_labels(groups, trees), ddof", "trees, ddof"),
        ("inter = group_relative(returns, groups, ddof=ddof", "inter = group_relative(returns, groups, ddof=None"),
        ("joint_labels(groups, trees), ddof=ddof", "joint_labels(groups, trees), ddof=None"),
        ("groups, ddof=ddof, epsilon=epsilon)", "groups, ddof=ddof)"),
        ("trees), ddof=ddof, epsilon=epsilon)", "trees), ddof=ddof)"),
        ("inter + intra", "inter"),
        ("root[node] = root[above[node]]", "root[node] = 0"),
        ("np.where(above < 0, root, above)", "above"),
        ("2 * mean - mean[root] - mean[before]", "2 * mean - 2 * mean[before]"),
        ("2 * mean - mean[root] - mean[before]", "mean - mean[before]"),
        ("np.sqrt(np.maximum(count, 1))", "np.maximum(count, 1)"),
        ("np.where(count > 0, (2", "np.where(count > -1, (2"),
        ("if (count > count[before]).any():", "if False:"),
        ("np.where(count > 1, count if", "np.where(count > 0, count if"),
        ('count if weighting == "size" else 1.0, 0.0', "count, 0.0"),
        ("weights[node] += weights[above[node]]", "pass"),
        ("weighted[node] += weighted[above[node]]", "pass"),
        ("out=value.copy()", "out=np.zeros_like(value)"),
        ("end.max() < n)", "True)"),
        ("above >= np.arange(len(above))", "above > np.arange(len(above))"),
    ],
    ("credit.discriminator", "test_credit_discriminator"): [
        ("-np.logaddexp(0.0, -logit)", "np.logaddexp(0.0, -logit)"),
        ("-np.logaddexp(0.0, -logit)", "-np.logaddexp(0.0, logit)"),
        ("return np.logaddexp(0.0, logit)", "return -np.logaddexp(0.0, logit)"),
        ("-limit, limit)", "-np.inf, np.inf)"),
        ("-limit, limit)", "-5, 5)"),
        ("if np.isnan(logit).any():", "if False:"),
    ],
    ("credit.pairs", "test_credit_pairs"): [
        ("alpha * mean_value + (1.0 - alpha) * critic_value", "alpha * critic_value + (1.0 - alpha) * mean_value"),
        ("tree.visit_count >= min_visits", "tree.visit_count > min_visits"),
        ("key=lambda c: -value[c]", "key=lambda c: value[c]"),
        ("value[chosen] - value[rejected] >= threshold", "value[chosen] - value[rejected] > threshold"),
        ("if 0 < value[chosen] - value", "if value[chosen] - value"),
        ("nsmallest(max_pairs_per_node or", "(lambda n, x: list(x)[:n])(max_pairs_per_node or"),
        ("chosen.return_ - rejected.return_", "rejected.return_ - chosen.return_"),
        ("(t for t in stepped if not t.success)", "stepped"),
        ("pairs.sort(key=lambda pair: -pair.gap)", "pass"),
        ("page is not None and action is not None", "page is not None"),
        ("first.setdefault((page.fingerprint, action), i)", "first[page.fingerprint, action] = i"),
        ("if tokens in kept or (max_per_task", "if (max_per_task"),
        ("return task.env, task.seed", 'return "", task.seed'),
    ],
    ("learn.losses", "test_learn_losses"): [
        ("return -weighted_mean(logps", "return weighted_mean(logps"),
        ("action_mask.sum() if normalizer is None", "len(values) if normalizer is None"),
        ("by_sequence if weights is None else by_sequence * weights", "by_sequence"),
        ("if not total > 0:", "if False:"),
        ("torch.where(action_mask.bool(), logps, torch.zeros_like(logps)).sum", "(logps * action_mask).sum"),
        ("dim=-1, dtype=torch.float64)", "dim=-1)"),
        ("ref_chosen.detach())", "ref_chosen)"),
        ("beta * (policy_chosen", "(policy_chosen"),
        ("chosen_rewards - rejected_rewards", "chosen_rewards + rejected_rewards"),
        ("-(1.0 - label_smoothing) * logsigmoid(margin)", "-logsigmoid(margin)"),
        ("- label_smoothing * logsigmoid(-margin)", "- label_smoothing * logsigmoid(margin)"),
        ("-(1.0 - label_smoothing) * logsigmoid(margin)", "-(1.0 - label_smoothing) * margin.sigmoid().log()"),
        ("(margin - 0.5) / beta", "margin - 0.5 / beta"),
        ("(margin - 0.5) / beta", "(margin - 1.0) / beta"),
        ("else lengths[0])", "else lengths[1])"),
        ("else lengths[1])", "else 1)"),
        ('if loss_type == "ipo" and label_smoothing > 0:', "if False:"),
        ("length >= 1", "length >= 0"),
        ("length >= 1", "length > 1"),
        ("chosen_rewards.detach(), rejected", "chosen_rewards, rejected"),
        ("rejected_rewards.detach())", "rejected_rewards)"),
        ("1.0 - label_smoothing, label_smoothing)", "label_smoothing, 1.0 - label_smoothing)"),
        ("1.0 - label_smoothing, label_smoothing)", "1.0 - label_smoothing, 0.0)"),
        ("softplus(logits) - target", "softplus(-logits) - target"),
        ("returns.detach()", "returns"),
        ("torch.where(mask, values, 0.0)", "values * mask"),
        ("torch.maximum(error,", "torch.minimum(error,"),
        ("old + (v - old).clamp", "(v - old).clamp"),
        ("(v - old).clamp(-clip, clip)", "(v - old).clamp(clip, clip)"),
        ("(v - old).clamp(-clip, clip)", "(v + old).clamp(-clip, clip)"),
        ("old_values.detach()", "old_values"),
        ("0.5 * weighted_mean", "weighted_mean"),
        ("weighted_mean(error, action_mask, weights=weights", "weighted_mean(error, action_mask, weights=None"),
        ("weights=weights, normalizer=normalizer)\n\n\ndef entropy", "weights=weights)\n\n\ndef entropy"),
        ("-(logps.exp() * torch.where(", "(logps.exp() * torch.where("),
        ("torch.where(torch.isinf(logps), 0.0, logps)", "logps"),
        ("rows.float()", "rows"),
        ("torch.split(rows, chunk)", "torch.split(rows, 1024)"),
        ("torch.split(rows, chunk)", "torch.split(rows, chunk)[:1]"),
    ],
    ("learn.policy_gradient_loss", "test_learn_policy_gradient test_learn_importance test_learn_kl"): [
        ("return PolicyGradientLoss(-mean(objective)", "return PolicyGradientLoss(mean(objective)"),
        ("rho.clamp(max=1.0 + clip[1])", "rho.clamp(max=1.0 + clip[0])"),
        ("rho.clamp(max=1.0 + clip[1])", "rho.clamp(1.0 - clip[0], 1.0 + clip[1])"),
        ("rho.clamp(min=1.0 - clip[0])", "rho.clamp(min=1.0 - clip[1])"),
        ("rho.clamp(min=1.0 - clip[0])", "rho.clamp(1.0 - clip[0], 1.0 + clip[1])"),
        ("rho.clamp(min=1.0 - clip[0])", "rho"),
        ("down.clamp(max=dual_clip)", "down.clamp(max=1.0 + dual_clip)"),
        ("down if dual_clip is None else", "down if True else"),
        ("torch.where(adv > 0, up,", "torch.where(adv < 0, up,"),
        ("torch.where(adv < 0, down, rho)", "down"),
        ("(bounded > rho)", "(bounded != rho)"),
        ("(bounded < rho)", "(bounded <= rho)"),
        ("shares = mean(rho)", "shares = mean(bounded)"),
        ("advantages.detach()", "advantages"),
        ("else old_logps.detach()", "else old_logps"),
        ("torch.where(mask, adv, 0.0)", "adv"),
        ("objective * torch.where(mask, importance_weights.detach().double(), 0.0)", "objective"),
        ("importance_weights.detach()", "importance_weights"),
        ("if importance_weights is not None and importance_weights.shape", "if False and importance_weights.shape"),
        ("weights=weights, normalizer=normalizer)\n\n    with", "weights=weights)\n\n    with"),
        ("weights=weights, normalizer=normalizer)\n\n    with", "normalizer=normalizer)\n\n    with"),
        ("epsilon / (1.0 + epsilon), epsilon", "epsilon, epsilon"),
        ("float(lengths.sum())", "float(len(lengths))"),
        ("float(unit.max() + 1)", "float(len(unit))"),
        ("1.0 / constant)", "constant)"),
        ("1.0 / _over(lengths, unit)", "1.0 / lengths"),
        ("torch.where(w > cap, 0.0, w) if drop", "w.clamp(max=cap) if drop"),
        ("torch.where(w > cap, 0.0, w) if drop", "torch.where(w >= cap, 0.0, w) if drop"),
        ("count.clamp(min=1)", "count.clamp(min=2)"),
        ("else w.clamp(max=cap)", "else w"),
        ("return torch.where(mask, w, 0.0)", "return w"),
        ("old_logps.detach(), sampler_logps.detach(), mask", "old_logps, sampler_logps, mask"),
        ("old_logps.detach(), sampler_logps.detach(), mask", "sampler_logps.detach(), old_logps.detach(), mask"),
        ("[mask].all()", "[mask].any()"),
        ("ref_logps.detach()", "ref_logps"),
        ("0.5 * r.square()", "r.square()"),
        ("torch.expm1(-r) + r", "torch.expm1(r) - r"),
        ("torch.expm1(-r) + r", "torch.expm1(-r) - r"),
        ("torch.where(mask, logps, 0.0).double()", "logps.double()"),
        ("torch.where(mask, old, 0.0).double()", "old.double()"),
        ('if level == "sequence":', "if False:"),
        ("total / count.clamp(min=1) if geometric_mean else total", "total / count.clamp(min=1)"),
        ("total / count.clamp(min=1) if geometric_mean else total", "total"),
        ("_over(total, unit), _over(count, unit)", "_over(total, unit), count"),
        ("mask.sum(dim=1).double()", "mask.shape[1] + 0 * log_ratio[:, 0]"),
        ("log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()", "log_ratio.exp()"),
        ("[:, None].expand(logps.shape)\n    return", "[:, None].expand(logps.shape).detach()\n    return"),
    ],
    ("learn.steps", "test_traps"): [('"logps/rejected": rejected', '"logps/rejected": chosen')],
    ("learn.batch", "test_traps"): [
        ("if longest > context:", "if False:"),
        ("len(s.token_ids) - 1 for s in samples", "len(s.token_ids) for s in samples"),
        ("np.stack([path[-size:], sample", "np.stack([np.maximum(path[-size:] - 1, 0), sample"),
        ("path[-size:], sample.token_ids,", "path[-size:], sample.token_ids[::-1],"),
        ("np.pad(ids, (0, width - len(ids)))", "np.pad(ids, (width - len(ids), 0))"),
    ],
    ("learn.logps", "test_traps"): [("return max(gaps) < rounding(base)", "return False")],
    ("policies.weights", "test_traps"): [
        ('MODEL_FILES = (".safetensors", ', "MODEL_FILES = ("),
        ("if file.suffix in MODEL_FILES:", "if True:"),
    ],
    ("learn.epochs", "test_learn_learner"): [
        ('learner.step_count = int(position["step_count"])', "pass"),
        ("np.random.default_rng([self.seed, epoch])", "np.random.default_rng()"),
    ],
    ("policies.renderer", "test_traps"): [
        ('add_special_tokens=False, verbose=False)["input_ids"]\n        return',
         'verbose=False)["input_ids"]\n        return'),
        ('add_special_tokens=False, verbose=False)["input_ids"]\n        else',
         'verbose=False)["input_ids"]\n        else'),
    ],
    ("policies.decoding", "test_traps"): [
        ("torch.log_softmax(logits, dim=-1)",
         "torch.log_softmax(logits / torch.where(warm, temperatures[:, None], 1.0), dim=-1)"),
        ("torch.softmax(allowed / ",
         "torch.softmax(allowed.where(allowed >= allowed.topk(20)[0][..., -1:], -torch.inf) / "),
    ],
    ("policies.columns", "test_architectures"): [
        ("windowed = (behind >= 0)", "windowed = (behind > 0)"),
        ("last += range(at, len(ids))", "last += [at] * len(growth.tokens)"),
    ],
    ("recipes.settings", "test_traps"): [("if self.run.constrained", "if False")],
}  # fmt: skip

FAULTS = [Fault(module, *texts) for (module, _), lines in LINES.items() for texts in lines]
TESTS = dict(LINES.keys())
SECONDS = 120  # of a module's tests at most


def load(module: str, source: str) -> None:
    """Make `source` the module of that name."""
    name = f"agentq.{module}"
    spec = importlib.util.spec_from_loader(name, loader=None)
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    exec(compile(source, name, "exec"), found.__dict__)
    setattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2], found)


def passes(module: str, source: str, tests: str) -> bool:
    """Do the tests pass with the module's source replaced? In a child; an endless loop is a failure.

    Raises:
        RuntimeError: if pytest could not run them.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        files = [f"tests/{name}.py" for name in tests.split()]
        code = pytest.ExitCode.INTERNAL_ERROR
        try:
            load(module, source)
            code = pytest.main([*PYTEST, *files])
        finally:
            os._exit(int(code))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code > 1:
        raise RuntimeError(f"the tests of {module} must run; pytest ended with {code}")
    return code == 0


def source_of(module: str) -> str:
    return (ROOT / f"python/agentq/{module.replace('.', '/')}.py").read_text()


def is_killed(fault: Fault) -> bool:
    source = fault.within(source_of(fault.place))
    compile(source, fault.place, "exec")
    return not passes(fault.place, source, TESTS[fault.place])


def main() -> None:
    faults, as_json = chosen(__doc__, FAULTS)
    os.chdir(ROOT)
    hypothesis.settings.register_profile("mutants", database=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    for module in {fault.place for fault in faults}:
        if not passes(module, source_of(module), TESTS[module]):
            raise SystemExit(f"the tests of {module} must pass on the source as it is; they fail")
    attempt(faults, is_killed, as_json)


if __name__ == "__main__":
    main()
