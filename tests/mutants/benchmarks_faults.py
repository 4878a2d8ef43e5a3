"""Faults in what is kept of trained models and in the tables that docs show of them."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

ROWS = "test_bench_results::test_rows_have_the_interval_over_seeds_and_pairs_those_over_seeds_and_tasks"
TARGETS = "test_bench_results::test_a_target_is_met_only_if_the_interval_over_seeds_is_above_zero"
COMMON = "test_bench_results::test_differences_are_over_the_tasks_that_both_rows_have"
PAGE = "test_bench_results::test_a_page_has_the_table_that_its_comment_asks_for"
RANKS = "test_bench_results::test_ways_of_measuring_are_correlated_over_trained_models"
SCENARIOS = "test_bench_results::test_scenarios_count_where_all_variants_are_solved"
SAME = "test_bench_results::test_outcomes_that_were_the_same_before_keep_their_file"
OF_RUNS = "test_bench_outcomes"
NOISE = "test_bench_results::test_the_noise_of_sampling_by_hand"
TIES = "test_bench_results::test_equal_values_share_the_mean_of_their_ranks"
BETWEEN = "test_bench_results::test_an_interval_of_a_mean_is_one_of_a_share_and_one_of_a_difference_is_not_cut"
OTHER_WAY = "test_bench_results::test_a_row_that_is_measured_another_way_is_not_compared_with_the_first_ways_base"
GATES = "test_bench_results::test_gates_of_bases_stand_under_their_aims_with_the_number_of_questions"
JUDGES = "test_bench_results::test_judges_stand_site_by_site_above_the_rule"

LINES: Lines = {
    ("outcomes.py", OF_RUNS): [
        ("            if not outcome.broken:\n", "            if True:\n"),
        ("sum(each) / len(each) for", "max(each) for"),
        ('and s != "base/eval")', ")"),
        ('if s == "eval" or (', "if ("),
        ("ended += [(tree.task.seed, of_tree(tree)) for tree in store.trees(name)]", "pass"),
        ("[stage] if stage else held_out(store)", "held_out(store)"),
        ("            if not t.broken:\n", "            if True:\n"),
        ("a == b for a, b in pairwise(texts)", "a in texts[:i] for i, a in enumerate(texts)"),
        ("/ max(1, len(texts))", "/ max(1, len(texts) - 1)"),
        ("if len(results) == 1:", "if len(results) == 0:"),
        ("return seed_difference(ours, theirs, common)", "return seed_difference(ours, theirs)"),
        ("max(0.0, found.low), min(1.0, found.high)", "found.low, found.high"),
        ("return table if Path(base) == embedded_base() else", "return table if False else"),
        ("return [] if Path(base) == embedded_base() else", "return [] if True else"),
        ("ended = [(t.task.seed, of_episode(t)) for", "ended = [(0, of_episode(t)) for"),
    ],
    ("outcomes.py", SAME): [
        ("if outcomes == replace(known, command=outcomes.command, commit=outcomes.commit):", "if outcomes == known:"),
        ("if outcomes == replace(known, command=outcomes.command, commit=outcomes.commit):", "if True:"),
    ],
    ("outcomes.py", f"{ROWS} {COMMON}"): [
        ("for side in (0, 1)", "for side in (1, 0)"),
        ("sorted(a.keys() & b.keys())", "sorted(a.keys() | b.keys())"),
    ],
    ("results.py", f"{ROWS} {COMMON}"): [
        ("_finite(asdict(difference(others, ones, seeds)))", "_finite(asdict(difference(ones, others, seeds)))"),
        ("min(len(each.tasks) for each in own)", "max(len(each.tasks) for each in own)"),
        ("next((name for name in FIRST if name in by_row), min(by_row))", "max(by_row)"),
        ("return each.table, each.env, each.measured", "return each.table, each.env, 'greedy'"),
        ("if name == first or not seeds:", "if not seeds:"),
    ],
    ("results.py", TARGETS): [
        ("met = None if low is None else low > 0", "met = None if low is None else low < 0"),
        ('found_gap["low"] if len(seeds) > 1 else None', 'found_gap["low_tasks"] if len(seeds) > 1 else None'),
        ("_finite(asdict(difference(a, b, seeds))) if seeds", "_finite(asdict(difference(b, a, seeds))) if seeds"),
        ('"seeds": len(seeds), "met"', '"seeds": len(a), "met"'),
    ],
    ("results.py", RANKS): [
        ('            and each.row != "base"\n', ""),
        ("and (not only or each.row in only)", ""),
    ],
    ("results.py", TIES): [(" + (sum(other == v for other in values) - 1) / 2 for v", " for v")],
    ("results.py", SCENARIOS): [("share == 1 for share", "share > 0 for share")],
    ("results_docs.py", PAGE): [
        ('wilson(round(row["mean"] * row["tasks"]), row["tasks"])', 'wilson(round(row["mean"]), 1)'),
        ('[gap["low"] is None :]', "[:1]"),
    ],
    ("results_docs.py", BETWEEN): [
        ('high if how == "rollouts" else min(1, high)', "high"),
        ("low, high = max(0, low), high", "low, high = low, high"),
    ],
    ("results_docs.py", OTHER_WAY): [('found.pop("difference", None)', "pass")],
    ("results_noise.py", NOISE): [
        ("ATTEMPTS / (ATTEMPTS - 1) * p * (1 - p)", "p * (1 - p)"),
        ("sqrt(s * s - many * many + one * one) / s", "sqrt(s * s + one * one) / s"),
        ("sqrt(v / ATTEMPTS / n), sqrt(v / n)", "sqrt(v / ATTEMPTS), sqrt(v)"),
        ("{each.attempts for each in own} != {ATTEMPTS}", "False"),
        ("if s > many else None", "if s > 0 else None"),
    ],
    ("results_bases.py", GATES): [
        ('sum(target["met"] for target in targets.values())', "len(found)"),
        ("log[int(number) - 1]", "log[int(number) - 2]"),
        ('targets |= line["targets"]', 'targets = line["targets"]'),
    ],
    ("results_bases.py", JUDGES): [
        ('"agreement", "false_positives", "false_negatives"', '"agreement", "false_negatives", "false_positives"'),
        ('logged[name][site]["model"], ', 'logged[names[0]][site]["model"], '),
    ],
}

FAULTS = faults_of("benchmarks", LINES)
