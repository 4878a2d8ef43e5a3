"""Faults in the worlds and in the languages of actions: what counts as done, what a fork shares, what is run."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

WRONG = "test_apps::test_an_expert_that_is_wrong_in_one_way_is_caught"
NOTHING = "test_apps::test_what_was_done_counts_and_doing_nothing_is_worth_nothing"
FORKS = "test_apps::test_fork_and_restore_take_names_and_data_along"
LIMITS = "test_apps::test_code_beyond_a_limit_is_a_step_without_effect"
REFUSES = "test_apps::test_apis_refuse_as_real_ones_do"
SPLITS = "test_apps::test_splits_have_different_people_and_variants_ask_different_things"
SHARED = "test_apps::test_equal_seeds_are_the_same_person_and_share_tables_until_they_change"
SGC = "test_apps::test_scenarios_are_solved_if_all_variants_are"
GROWS = "test_grammars::test_a_conversation_only_grows_and_the_compact_form_forgets"
ENDS = "test_webarena::test_fifty_tasks_end_as_they_were_made_to"
FILE = "test_webarena::test_a_file_is_an_environment"
APPWORLD = "test_appworld::test_an_episode_is_scored_by_appworlds_tests"

LINES: Lines = {
    ("agent/lines.py", "test_grammars"): [
        ("if len(blocks) == 1 and not", "if blocks and not"),
        ('mended if "\\n" in held else (*mended, "fence")', "mended"),
        ('return f"\\n```\\n{said}\\n```" if "\\n" in said else f" {said}"', 'return f" {said}"'),
    ],
    ("envs/check.py", "test_explore"): [
        ("end = action", "pass"),
        ("min(WALK, env.max_steps)", "min(WALK, env.max_steps - 1)"),
    ],
    ("envs/promises.py", "test_explore"): [
        ("self.actions if self.end is None else [*self.actions, self.end]", "self.actions"),
        ("(*case.walk, _STOP)", "(*case.actions, _STOP)"),
    ],
    ("envs/explore.py", "test_explore"): [
        ('int(kind.get("minimum", 0))', "0"),
        ('asked.get("required", ())', "()"),
        ("if offered and rng.random() < 0.5 else", "if False else"),
    ],
    ("envs/contract.py", "test_tools"): [('if list(getattr(env, "tools", [])) != known:', "if False:")],
    ("envs/makers.py", "test_gymnasium"): [("_here.update([name] if here else [])", "_here.add(name)")],
    ("envs/own_env.py", "test_contract"): [
        ('kept is own or kept is getattr(own, "__dict__", own)', "kept is own"),
        ('self._apart("restore", token.token)', "pass"),
    ],
    ("envs/replies.py", "test_contract"): [("float(told) if isinstance(told, bool) else told", "told")],
    ("report/picture.py", "test_picture"): [
        ('_CALL.sub(r"\\1 \\2", text)', "text"),
        ("(mean < -ROUNDING) | (mean > 1 + ROUNDING)", "mean > 1 + ROUNDING"),
    ],
    ("results.py", "test_tables"): [("fmean(t.return_ for t in self.episodes)", "self.rate")],
    ("envs/webarena/evaluators.py", ENDS): [
        ("not values.isdisjoint(query.get(key, ()))", "True"),
        ("any(path in base for path in bases)", "any(path == base for path in bases)"),
        ("if tokens and len(wanted) == 1 else", "if False else"),
        ("part.split(_OR)", "[part]"),
    ],
    ("envs/webarena/page.py", ENDS): [("map(_text, found)", "map(_text, found[:1])")],
    ("envs/webarena/env.py", FILE): [
        ("self._kit = kit_of(job_of(self.name, token.task.seed))", "pass"),
        ("twin._kit, twin._state = self._kit, self._state", "twin._state = self._state"),
    ],
    ("envs/appworld.py", APPWORLD): [
        ("self._judged(text) if done else", "self._judged(text) if text else"),
        ("len(found.passes) / max(1, found.num_tests)", "float(found.success)"),
    ],
    ("envs/apps/goals.py", WRONG): [
        ('tests["nothing else changed"] = not left and done', 'tests["nothing else changed"] = done'),
        ('tests[f"{i} {change}"] = found is not None', 'tests[f"{i} {change}"] = True'),
        (
            "return all(same((found.after or {}).get(name), value) for name, value in self.fields.items())",
            "return True",
        ),
        ('right = same(outcome["answer"], goal.answer)', "right = True"),
        ("number is not None and abs(number - wanted) < 0.005", "number is not None and abs(number - wanted) < 2"),
        ("            left.remove(found)", "            left.clear()"),
    ],
    ("envs/apps/goals.py", NOTHING): [
        ("= not left and done", "= not left"),
        ('passed and outcome["status"] == "success"', "passed"),
    ],
    ("envs/apps/state.py", SHARED): [
        ("        self._owned.clear()", "        pass"),
        (
            "            self._tables[name] = dict(self.table(name))",
            "            self._tables[name] = self.table(name)",
        ),
    ],
    ("envs/apps/env.py", FORKS): [
        ("        self._names = token.names", "        pass"),
        ("        self._state.restore(token.data)", "        pass"),
    ],
    ("envs/apps/env.py", LIMITS): [
        ("            state.restore(before)", "            pass"),
        ("            self._names = ran.state", "            pass"),
    ],
    ("envs/apps/sandbox.py", LIMITS): [
        ("if len(state) > DUMP_BYTES:", "if False:"),
        ('"max_memory": MEMORY_BYTES,', '"max_memory": 1_000_000_000,'),
    ],
    ("envs/apps/api.py", REFUSES): [
        ("if not found.public and given.pop(TOKEN) !=", "if not found.public and not given.pop(TOKEN) and None !="),
        ('.get(_number(app), {}).get("token")', '.get(_number(app), {"token": state.me["tokens"][app]})["token"]'),
        ('if username != state.me["email"] or', "if"),
        ("1 <= page_limit <= MAX_PAGE", "1 <= page_limit"),
    ],
    ("envs/apps/draw.py", SPLITS): [
        ("return split * SPLIT_SIZE + index // VARIANTS", "return index // VARIANTS"),
        ("return split * SPLIT_SIZE + index // VARIANTS", "return split * SPLIT_SIZE + index"),
    ],
    ("envs/booking/several.py", "test_envs_booking"): [
        ("compared(one, want).values()) and one.place == want.place.number", "compared(one, want).values())"),
        ('{"completed": len(made) == len(wants)}', '{"completed": True}'),
        ("while other.place in [want.place for want in wants]", "while False"),
        ("replace(other, **guest)", "other"),
        ("rng.choice((2, 3))", "2"),
        ("zip(found, wants, made", "zip(found, wants, made[::-1]"),
        ("dict.fromkeys(reply(want", "list(reply(want"),
    ],
    ("envs/booking/several.py", "test_envs::test_expert_recovers_from_any_page"): [
        ("made >= len(wants)", "made > 1"),
        ("toward(wants[made], view)", "toward(wants[0], view)"),
    ],
    ("evaluation/endings.py", "test_evaluation_endings"): [
        ("step.proposal.action.text == before.proposal.action.text\n        and ", ""),
        ("step.observation.text == step.result.observation.text == page", "step.observation.text == page"),
        ("step.observation.text == step.result.observation.text == page", "step.result.observation.text == page"),
        ("and step.result.error_kind is None", ""),
        ("errors + [IN_VAIN]", "[IN_VAIN]"),
    ],
    ("evaluation/comparison.py", "test_compare"): [
        ("[(a.task.env, a.task.seed) for a, _ in pairs]", "[a.task for a, _ in pairs]"),
        ("not mine[task].broken and ", ""),
        ("SHARE * len(lost)", "0"),
        ("excess[what] <= 0", "excess[what] < 0"),
        (" - of_all[what] / max(1, len(solved))", ""),
        ("median(found)", "min(found)"),
        ("if alone else named - {role}", "if not alone else named - {role}"),
        ("and excess[what] >= CLOSE * excess[kept[alike[0]]]", "and False"),
        ("elif it.what and it.text not in", "elif it.what and it.text in"),
        ("if it.what and it.what not in theirs", "if it.what not in theirs"),
    ],
    ("evaluation/seeds.py", "test_evaluation_seeds"): [("if len(set(names)) < len(names):", "if False:")],
    ("evaluation/stats.py", "test_evaluation_stats"): [("if x not in (0, 1)", "if x is None")],
    ("report/compare.py", "test_compare"): [
        ("if not of_tree(tree).broken", ""),
        ("success=of_tree(t).success", "success=True"),
    ],
    ("evaluation/correction.py", "test_evaluation_correction"): [
        ("after >= before and result.observation != page", "after >= before"),
        ("after >= before and", "after > before and"),
        ("after is None or", "False or"),
        ("and not result.truncated", ""),
        ("None if result.terminated else", ""),
        ("before = after", "pass"),
        ("if episode.broken:", "if False:"),
        ("lost += None in wrong.values()", "lost += 1"),
        ("if success != episode.success:", "if False:"),
        ("other = env.fork()", "other = env"),
        ("episode.steps[min(wrong)]", "episode.steps[max(wrong)]"),
        ("not episode.success and circles", "circles"),
        ("(step.observation.fingerprint, ", "("),
    ],
    ("evaluation/scenarios.py", SGC): [
        ("all(wins) for wins", "any(wins) for wins"),
        ("if len(wins) == most]", "]"),
    ],
    ("types.py", GROWS): [
        ("pages=self.pages[:1] + self.pages[2:]", "pages=self.pages[1:]"),
        ("if self.keeps_pages else ()", ""),
    ],
    ("agent/prompts.py", GROWS): [
        ("if len(pages) > len(history.actions):", "if False:"),
    ],
    ("agent/code.py", "test_grammars"): [
        ("        if cut:", "        if False:"),
        ("node.keywords.sort(", "sorted(node.keywords, "),
        ("if all(word.arg and isinstance", "if all(word.arg or isinstance"),
        ("        return None, said, ()", '        return "STOP", said, ()'),
    ],
}

FAULTS = faults_of("python/agentq", LINES)
