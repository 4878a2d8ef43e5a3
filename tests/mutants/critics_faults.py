"""Faults in python/agentq/critics/."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

LINES: Lines = {
    ("ranker.py", "test_critics"): [
        ("ranked.append(order[picked])", "ranked.append(picked)"),
        ("missed = 0\n            ranked", "ranked"),
        ("self.stats.fallbacks += len(ranking) < len(proposals)", "pass"),
        ("return [*ranked, *remaining]", "return [*remaining, *ranked]"),
        ("len(remaining) > 1 and missed < 2", "len(remaining) > 1 and missed < 1"),
        ("rng.permutation(len(remaining))", "range(len(remaining))"),
        ("for _ in range(2):", "for _ in range(1):"),
        ("order = rng.permutation(k).tolist()", "order = list(range(k))"),
        ("return [order[i] for i in ranking]", "return list(ranking)"),
        ('if Gives.PATTERNS in self.engine.gives else ""', 'if Gives.LOGPS in self.engine.gives else ""'),
        ("return []", "return list(range(k))"),
        ("orders = (order, order[::-1])", "orders = (order, order)"),
        ("score[o] += np", "score += np"),
        ("key=lambda i: -score[i]", "key=lambda i: score[i]"),
        ("letters=LETTERS[:k])", "letters=LETTERS[: k + 1])"),
        ("len(set(answer.letter_logps)) == 1", "len(set(answer.letter_logps)) == k"),
        ("if len(set(score.tolist())) > 1 else []", ""),
        ("question=LETTER_QUESTION", "question=RANKING_QUESTION"),
        ("most = 1 if letters else self.max_new_tokens", "most = self.max_new_tokens"),
        ('role="critic"', 'role="policy"'),
        ("(k - rank) / (k - 1)", "(k - rank + 1) / k"),
        ("found[index] = value", "found[-1 - index] = value"),
        ("fmean(left) if left", "0.5 if left"),
        ('if method == "letters" and Gives.LETTERS', 'if False and Gives.LETTERS'),
    ],
    ("judge.py", "test_judge"): [
        ("bool(self.findings) and all(", "all("),
        ("all(holds", "any(holds"),
        ("findings.append((CUT_OFF, False))", "pass"),
        ("reward=float(success), ", ""),
        (", success=success)", ")"),
    ],
}  # fmt: skip

FAULTS = faults_of("python/agentq/critics", LINES)
