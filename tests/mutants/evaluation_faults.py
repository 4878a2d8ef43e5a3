"""Faults in rates, intervals and comparisons, and in the tables that docs show: a figure that would be wrong."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

STATS = "test_evaluation_stats"
SEEDS = "test_evaluation_seeds"
OUTCOMES = "test_evaluation_outcomes"

LINES: Lines = {
    ("evaluation/stats.py", STATS): [
        ("inv_cdf(0.5 + confidence / 2)", "inv_cdf(confidence)"),
        ("z * z / (4 * n * n)", "z * z / (4 * n)"),
        ("0.0 if successes == 0 else", "0.0 if successes <= 1 else"),
        ("1.0 if successes == n else", "1.0 if successes >= n - 1 else"),
        ("k = only_a + only_b, min(only_a, only_b)", "k = only_a + only_b, only_a"),
        ("term * (m - i) // (i + 1)", "term * (m - i - 1) // (i + 1)"),
        ("Fraction(2 * tail, 2**m)", "Fraction(tail, 2**m)"),
        ("_joined(rate_a - low_a, high_b - rate_b, phi)", "_joined(rate_a - low_a, rate_b - low_b, phi)"),
        ("cross - n / 2", "cross - n"),
        (" if cross > 0 else float(cross)", ""),
        ("- 2 * phi * x * y", "+ 2 * phi * x * y"),
        ("left = ~np.asarray(broken, bool)", "left = np.asarray(broken, bool)"),
        ("n = self.n - self.broken", "n = self.n"),
        ("*wilson(self.successes, n)) if self.broken", "*wilson(self.successes, self.n)) if self.broken"),
        ("zip(steps, gone, strict=True) if not lost]", "zip(steps, gone, strict=True)]"),
        ('"broken": sum(lost for _, lost in mine)', '"broken": sum(broken)'),
        ("if len({*envs}) > 1 else ()", "if envs else ()"),
        ("strict=True) if at == env]", "strict=True)]"),
        ("if f.name not in values and f.name not in later", "if f.name not in values"),
    ],
    ("evaluation/seeds.py", SEEDS): [
        ("[0.5 - confidence / 2, 0.5 + confidence / 2]", "[1 - confidence, confidence]"),
        ("t_quantile(n - 1, ", "t_quantile(n, "),
        ("/ math.sqrt(n)", "/ math.sqrt(n - 1)"),
        ("np.where(has, row, 0.0)[drawn]", "np.where(has, row, 0.5)[drawn]"),
        ("np.maximum((numbers > 0).sum(axis=0), 1)", "len(gaps)"),
        ("row[[place[task] for task in names]] = gap", "row[: len(names)] = gap"),
        ("over_seeds(by_seed, confidence)", "over_seeds(by_seed)"),
        ("has[drawn].sum(axis=1) for has in known", "drawn.shape[1] * has.any() + 0 * drawn[:, 0] for has in known"),
        ("_redrawn(gaps, tasks, seed)", "_redrawn(gaps, None, seed)"),
    ],
    ("evaluation/outcomes.py", OUTCOMES): [
        ("(not tree.success[end], -_return(tree, end), int", "(-_return(tree, end), not tree.success[end], int"),
        ("-_return(tree, end), int(tree.depth[end]))", "-_return(tree, end), -int(tree.depth[end]))"),
        (" & ~tree.broken", ""),
        ("-child))", "child))"),
        ("if tree.visit_count[child]]:", "]:"),
        ('found["steps"], of[0], found["broken"], of[2])', 'found["steps"], *of)'),
        ("not tree.flags[end] & TERMINAL and not tree.success[end]", "not tree.success[end]"),
        ('int(found["end"]) if "end" in found else best_end(tree)', "best_end(tree)"),
        (' and "answers" not in tree.info', ""),
        ('tree.success.any() if found is None else found["success"]', "tree.success.any()"),
        ('return_=found["return"])', "return_=float(solved(tree)))"),
        ("float(tree.reward[node]),", "float(tree.reward[before]),"),
        ("tree.depth[end]), *of)", "tree.depth.max()), *of)"),
        ("for node in tree.path(end)))", "for node in tree.path(end)[1:-1]))"),
    ],
    ("evaluation/critic.py", "test_evaluation_critic"): [
        ("(tree.visit_count > 0) & ~tree.broken", "tree.visit_count > 0"),
        ("(tree.visit_count > 0) & ~tree.broken", "~tree.broken"),
        ("by_search != 0 and by_critic != 0", "by_search != 0"),
        ("by_search != 0 and by_critic != 0", "by_critic != 0"),
        ("n += len(values) > 1", "n += 1"),
        ("tied += len(values) > 1 and bool", "tied += bool"),
        ("(values == values[0]).all()", "(values == values[0]).any()"),
        ("sum(1 / len(v) for v in values)", "sum(1 / (len(v) - 1) for v in values)"),
    ],
    ("evaluation/comparison.py", "test_compare"): [
        (
            "paired_difference([b.success for _, b in pairs], [a.success for a, _ in pairs])",
            "paired_difference([a.success for a, _ in pairs], [b.success for _, b in pairs])",
        ),
        ("_by_env(only_first, only_second) if", "_by_env(only_second, only_first) if"),
        (" and not theirs[task].broken", ""),
        ("if (task := (t.task.env, t.task.seed)) in found:", "if (task := (t.task.env, t.task.seed)) and False:"),
        (
            "        [[b.success for _, b in pairs] for pairs in seeds],\n"
            "        [[a.success for a, _ in pairs] for pairs in seeds],\n",
            "        [[a.success for a, _ in pairs] for pairs in seeds],\n"
            "        [[b.success for _, b in pairs] for pairs in seeds],\n",
        ),
    ],
    ("evaluation/endings.py", "test_evaluation_endings test_checked test_choices"): [
        ("missed = TAKEN_FOR if judged(tree) else NOT_CHOSEN", "missed = TAKEN_FOR"),
        ("last.error_kind or OUT_OF_STEPS", "OUT_OF_STEPS"),
        ('"" if found["success"] else missed', '"" if won else missed'),
        (
            'stop = "" if won else tree.fault or NOT_FOUND\n    found_kinds',
            'stop = "" if won else NOT_FOUND\n    found_kinds',
        ),
        ("and proposal.stop_reason is StopReason.LENGTH", ""),
    ],
    ("evaluation/scenarios.py", "test_apps::test_scenarios_are_solved_if_all_variants_are"): [
        ("if most < 2:", "if most < 1:"),
        ("        if name:\n", "        if True:\n"),
    ],
}

FAULTS = faults_of("python/agentq", LINES)
