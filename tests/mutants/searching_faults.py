"""Faults in python/agentq/searching/."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

TREE = "test_sampling test_search test_faults"
BRANCHES = (
    "test_branching test_sampling "
    "test_train::test_where_unsure_branches_after_the_page_that_surprised_and_then_starts_afresh "
    "test_train::test_branches_go_on_from_the_state_of_their_node test_faults_stages::"
    "test_branched_rollouts_that_break_have_no_end"
)
LEAVES = (
    "test_search_leaves test_selection::test_timing_does_not_show_in_a_tree_of_several_leaves "
    "test_selection::test_leaves_in_flight_act_at_once_in_sessions_of_their_own"
)
STEPS = (
    "test_search_steps test_selection::test_a_step_search_takes_one_path_and_keeps_what_it_knows_below_it "
    "test_selection::test_a_step_search_adds_rollouts_to_those_it_has"
)
PRIORS = "test_selection::test_priors_are_the_softmax_of_whole_log_probabilities test_sampling"
KILLED = (
    "test_partial::test_all_that_is_known_of_the_nodes_comes_back "
    "test_partial::test_a_killed_search_becomes_the_tree_of_one_that_was_not"
)
SAME = "test_processes::test_any_number_of_workers_fills_the_same_store"
DEAD = (
    "test_processes::test_items_of_a_dead_worker_are_done_again "
    "test_processes::test_an_item_that_kills_three_workers_is_kept_as_broken_and_no_other"
)
GROWING = "test_processes::test_a_half_grown_tree_goes_from_worker_to_worker"
PAGES = "test_processes::test_first_pages_are_counted_over_all_workers"
BEGUN = "test_processes::test_a_job_that_cannot_begin_and_a_worker_that_dies_of_it_end_the_stage"
GROWTH = (
    "test_processes::test_the_run_hears_of_every_rollout_of_trees_that_have_not_ended "
    "test_search_steps::test_a_search_at_each_step_tells_of_all_its_rollouts_and_of_a_share_only_by_its_calls "
    "test_choices::test_episodes_tell_what_share_of_them_is_done"
)
CUT = "test_train::test_the_straggler_cut_keeps_the_same_rollouts_in_any_order"

LINES: Lines = {
    ("tree.py", TREE): [
        ("rollout.expansion + rollout.stride * rollout.sampled", "rollout.expansion"),
        ("self.policy.propose(node.history, k, seed=seed, temperature=self.settings.temperature)",
         "self.policy.propose(node.history, k, seed=seed)"),
        ("self._sample(node, rollout, self.settings.num_proposals)", "self._sample(node, rollout, 5)"),
        ("Stream.TREE, number", "Stream.BRANCH, number"),
        ("self.forest.tell_one(ticket, taken)", "self.forest.tell_one(ticket, node.result.reward)"),
        ("self.forest.set_terminal([ticket])", "pass"),
        ("self.left -= len(tickets)", "pass"),
        ("self.succeeded and self.settings.stop_on_success", "self.settings.stop_on_success"),
        ("self.succeeded and self.settings.stop_on_success", "self.succeeded"),
        ("self.expansions += n * max(", "self.expansions += 0 * max("),
        ("[node.children.index(child)]", "[0]"),
        ("if node.broke < TRIES:", "if True:"),
        ("if node.broke < TRIES:", "if False:"),
        ("self.faults[fault.kind] += 1", "pass"),
        ('self.counts["iterations"] += 1', "pass"),
    ],
    ("tree.py", GROWTH): [
        ("(self.settings.num_iterations - self.left) * whole", "(self.settings.num_iterations - self.left)"),
        ('self.resets.grew(self.task.seed, self.counts["iterations"], done)', "pass"),
    ],
    ("collect.py", GROWTH): [("self.growing.pop(item.task.seed, None)", "pass")],
    ("worker.py", GROWTH): [('grew=partial(send, "grew")', "")],
    ("episodes.py", GROWTH): [
        ('settings.share(counts["iterations"], counts["env_steps"])', 'settings.share(counts["iterations"], 0)'),
    ],
    ("selection.py", GROWTH): [
        ("max(rollouts / self.num_iterations,", "max(0,"),
        ("calls / self.max_calls if self.max_calls else 0.0", "0.0"),
    ],
    ("tree.py", LEAVES): [
        ("min(self.left, self.settings.leaves_in_flight)", "1"),
        ("min(self.left, self.settings.leaves_in_flight)", "self.settings.leaves_in_flight"),
        ("self.expansions + i, n)", "self.expansions, n)"),
        ("sum([len(p.token_ids) for p in sampled])", "len(sampled)"),
        ("+= len(sampled[0].prompt_ids)", "+= sum(len(p.prompt_ids) for p in sampled)"),
        ("zip(self.sessions, batch, strict=False)", "zip(self.sessions[:1] * n, batch, strict=False)"),
    ],
    ("tree.py", "test_selection::test_a_search_is_its_slow_twin"): [
        ("child.prior = float(prior)", "pass"),
        ("[child.value for child in node.children], shares)", "[0.5 for child in node.children], shares)"),
    ],
    ("nodes.py", f"test_search_nodes {TREE}"): [
        ("if key not in by_key:", "if True:"),
        ("if len(set(keys)) == len(keys):", "if True:"),
        ('attrgetter("value"), reverse=True', 'attrgetter("value"), reverse=False'),
        ("key=keys.count, reverse=True", "key=keys.count"),
        ('reverse=True), first', 'reverse=True), max(children, key=attrgetter("value"))'),
        ("child.value = value", "pass"),
        ("&= EXHAUSTED", "&= 0"),
        ("self.result.terminated or self.result.truncated)", "self.result.terminated)"),
        ("f.kind if f else None", "None"),
    ],
    ("nodes.py", "test_search_nodes"): [("return self.ended and self.result", "return self.result")],
    ("faults.py", "test_faults"): [
        ("self.without.add(seed)", "self.without.add(len(self.without))"),
        ("self.without.clear()", "pass"),
    ],
    ("selection.py", "test_selection"): [
        ('if selection != "thompson_beta":', "if False:"),
        ("min(max(value, 0.0), 1.0)", "min(value, 1.0)"),
        ("abs(taken - value) > ROUNDING", "taken != value"),
    ],
    ("checked.py", "test_checked"): [('"end": end}', '"end": 0}')],
    ("selection.py", PRIORS): [
        ("p.action_logp if", "p.action_logp / len(p.logps) if"),
        ("np.exp(logps - logps.max())", "np.exp(logps)"),
        ("weights / weights.sum()", "weights"),
        ("c_exp=settings.c_exp", "c_exp=1.0"),
        ("alpha=settings.alpha", "alpha=1.0"),
        ("exhaust=True", "exhaust=False"),
        ("task_seed(settings.seed, task, stream) if task", "settings.seed if task"),
        ('if settings.selection == "gumbel" else 0', 'if settings.selection == "puct" else 0'),
    ],
    ("session.py", f"test_search_nodes {TREE}"): [
        ("before.total + result.reward", "result.reward"),
        ("if self.position is not before:", "if False:"),
        ("if page.fingerprint != node.history.observation.fingerprint:", "if False:"),
        ("or node.broke >= TRIES:", ":"),
        ('self.counts["env_steps"] += 1', "pass"),
        ('node.restored = "approximate"', "pass"),
        ("path[known[-1] + 1 :]", "path[known[-1] :]"),
        ("TRIES = 2", "TRIES = 3"),
        ("self.position, node.fault = None, fault", "node.fault = fault"),
    ],
    ("unreadable.py", "test_unreadable"): [
        ("history.actions[-most:]", "history.actions"),
        ("or len(last) < most", ""),
        ("readable or ", ""),
        ("language=history.language", ""),
    ],
    ("rollout.py", "test_sampling"): [
        ("if settings.repeat_temperature and history", "if history"),
        ("history.actions[-1:] == ", "history.actions[:1] == "),
        ("temperature=settings.repeat_temperature)", "temperature=settings.temperature)"),
        ("repeats.append(proposal)", "pass"),
    ],
    ("rollout.py", f"test_search_leaves {TREE}"): [
        ("settings.attempt, len(steps))", "len(steps))"),
        ("settings.attempt, len(steps))", "settings.attempt, 0)"),
        ("propose(history, 1, seed=seed, temperature=settings.temperature)", "propose(history, 1, seed=seed)"),
        ("sum(step.result.reward for step in steps)", "result.reward"),
        ("result.success and not result.broken, info", "result.success, info"),
        ("if first is None or not first.broken or not first.steps:", "if True:"),
        ('"retried": used(first)', '"retried": used(again)'),
        ("history = after\n", "pass\n"),
    ],
    ("branching.py", BRANCHES): [
        ("if h > unsure[0]", "if h < unsure[0]"),
        ("if h > unsure[0]", "if False"),
        ("children[n] == 1", "children[n] >= 1"),
        ("return -float(", "return float("),
        ("grown.nodes[i].parent for i, h", "i for i, h"),
        ("rng.choice([0, *inner[i % trees]])", "rng.choice([0])"),
        ("i and n.tree == t and not n.ended", "i and not n.ended"),
        ("Stream.BRANCH, number, len(chain))", "Stream.BRANCH, 0, len(chain))"),
        ("Stream.BRANCH, number, len(chain))", "Stream.BRANCH, number, 0)"),
        ("seed=seed, temperature=settings.temperature", "seed=seed"),
        ("if node is start:", "if False:"),
        ("settings, grown.started + i)", "settings, i)"),
        ("sum(reward[i] for i in grown.path(end))", "reward[end]"),
        ("grown.lost += chain", "pass"),
        ("return self.ended and not self.broken and self.result", "return not self.broken and self.result"),
        ("parent = len(grown.nodes)\n", "pass\n"),
        ("[nodes[end].tree for end in ends]", "[0 for end in ends]"),
    ],
    ("demonstrate.py", "test_sampling test_train::test_inspection_lets_the_agent_act_at_every_state_of_the_expert"): [
        ("Stream.INSPECTION, t)", "Stream.INSPECTION, 0)"),
        ("(histories[t], 1, seed=seed, temperature=settings.temperature)", "(histories[t], 1, seed=seed)"),
        ("propose(histories[t], 1,", "propose(histories[0], 1,"),
        ("parent += [max(0, 2 * t - 1)] * 2", "parent += [max(0, 2 * t)] * 2"),
        ("proposals += [step.proposal, own[t]]", "proposals += [own[t], step.proposal]"),
    ],
    ("choices.py", "test_choices"): [
        ("(q[c], tree.critic_value[c]", "(tree.critic_value[c], q[c]"),
        ("tree.critic_value[c], tree.visit_count[c], -c)", "tree.critic_value[c], -c)"),
        ("tree.visit_count[c], -c)", "tree.visit_count[c], c)"),
        ("if tree.visit_count[child]]", "]"),
        ("votes[pages.get(end, \"\")]", "-votes[pages.get(end, \"\")]"),
        ("votes[pages.get(end, \"\")]", "end"),
        ("scores.get(end, 0.0), _logp(tree, end)", "scores.get(end, 0.0), 0.0"),
        ("(scores.get(end, 0.0), _logp", "(-scores.get(end, 0.0), _logp"),
        ('tree.info["answers"] or tree.info["ends"][:1] or [0]', 'tree.info["ends"] or [0]'),
        ("return found if np.isfinite(found) else -np.inf", "return found"),
    ],
    ("episodes.py", "test_choices"): [
        ('counts["env_steps"] + turns', "turns"),
        ('counts["env_steps"] + turns', 'counts["env_steps"]'),
        ('settings.seed, counts["iterations"],', "settings.seed, 0,"),
        ("one = found[ends.index(end)]", "one = found[0]"),
        ('"end": end}', '"end": 0}'),
        ("if answered and score]", "if score]"),
    ],
    ("tree.py", "test_choices"): [
        ('self.counts["calls"] += k', 'self.counts["calls"] += 1'),
        ('< self.counts["calls"] + k:', '< self.counts["calls"]:'),
    ],
    ("steps.py", STEPS): [
        ("node, search.settings.num_iterations", "node, 0"),
        ("search.taken.append(_told(search, search.nodes[best]))", "search.taken.append(_told(search, search.root))"),
        ("any(each.won for each in kept.values())", "False"),
        ("search.forest.recommend([search.tree]).tolist()", "[search.root.children[-1].id]"),
    ],
    ("partial.py", KILLED): [
        ('"left": search.left', '"left": search.settings.num_iterations'),
        ('"expansions": search.expansions', '"expansions": 0'),
        ("nodes[0].snapshot = search.root.snapshot", "pass"),
        ("search.sessions[0].position = nodes[0]", "pass"),
        ("parent.children = [*parent.children, node]", "parent.children = [node, *parent.children]"),
        ("node.total = parent.total + result.reward", "node.total = 0.0"),
        ('node.broke = state["broke"][i]', "pass"),
        ("search.begun -= state", "search.begun += state"),
        ('search.counts.update(state["counts"])', "pass"),
        ('(-1, above), *(table["parent"][1:] + above).tolist()]\n', '(-1, above), *table["parent"][1:].tolist()]\n'),
        ('"taken": search.taken', '"taken": []'),
    ],
    ("partial.py", "test_partial::test_a_tree_is_kept_at_a_bounded_rate "
        "test_partial::test_a_write_that_takes_long_is_followed_by_a_wait_in_proportion "
                   "test_partial::test_a_damaged_or_foreign_tree_is_dropped_with_a_line"): [
        ("SHARE * (now - begun)", "0"),
        ("if begun < self._next:", "if False:"),
        ("if tree.task != search.task:", "if False:"),
        ('if state["owner"].get(name) != owner[name]:', "if False:"),
        ("if first.observation.fingerprint != shown.observation.fingerprint:", "if False:"),
    ],
    ("collect.py", CUT): [
        ("own = replace(settings, attempt=item.attempt)", "own = settings"),
        ("cut is not None and taken >=", "False and taken >="),
        ("if cut is not None and t is not None:", "if False:"),
        ("self.done += 1", "self.done += 2"),
    ],
    ("collect.py", "test_collection test_search::test_collection_goes_on_where_an_interrupted_one_stopped "
                   "test_faults_stages::test_a_run_whose_world_is_gone_ends_and_keeps_nothing_of_it "
                   "test_faults_stages::test_a_stage_none_of_whose_few_tasks_begins_ends_the_run"): [
        ("if item.key not in kept]", "]"),
        ("len(items) - len(todo), on_item", "0, on_item"),
        ("self.held.append((item, found))", "self.unsettled.append((item, found))"),
        ("        self.settle()\n        gone", "        gone"),
        ("with self.store.transaction():", "if True:"),
        ("> LONGEST_S:", "> 1e9:"),
        ("if not self.resets.in_a_row:\n                self._let_go()", "if False:\n                self._let_go()"),
        ("gone = kind is None and bool(self.held) and not self.done", "gone = False"),
    ],
    ("workers.py", SAME): [
        ("self.crew.usage += used", "pass"),
        ("self.to.keep(worker.doing.pop(key), found)", "worker.doing.pop(key)"),
    ],
    ("workers.py", DEAD): [
        ("if self.deaths[key] < DEATHS:", "if self.deaths[key] <= DEATHS:"),
        ("if self.deaths[key] < DEATHS:", "if self.deaths[key] < 1:"),
        ("self.queue.append(item)", "pass"),
        ("tree = self.kind == TREE", "tree = self.kind != TREE"),
    ],
    ("workers.py", "test_collection"): [
        ('info = {"attempt": item.attempt}', "info = {}"),
        ("self.to.store.partial(self.to.stage, item.task.seed) if self.kind == TREE else None", "None"),
        ("if self.stillborn >= DEATHS:", "if self.stillborn > DEATHS:"),
        ("if self.deaths[item.key] >= ALONE:", "if False:"),
        ("alone = any(self.deaths[key] >= ALONE for key in worker.doing)", "alone = False"),
        ("and len(worker.doing) < self.each", "and not worker.doing"),
    ],
    ("workers.py", GROWING): [
        ("self.to.store.add(self.to.stage, PARTIAL, str(packed.seed), packed)", "pass"),
    ],
    ("workers.py", PAGES): [
        ("self.to.resets.shown() if values[0] is None else self.to.resets.failed(*values[0])", "pass"),
    ],
    ("workers.py", BEGUN): [
        ("raise values[0]", "raise RuntimeError"),
    ],
    ("worker.py", SAME): [
        ("used.since(self.counted)", "used"),
        ("self.counted = used", "pass"),
    ],
    ("worker.py", GROWING): [('self.send("partial", pack(tree, self.dictionaries))', "pass")],
    ("worker.py", "test_collection"): [
        ("self.kept.given[item.task.seed] = partial", "pass"),
        ("found = self.given.pop(seed, None)", "found = None"),
        ("found = self.given.pop(seed, None)", "found = self.given.get(seed)"),
        ("OSError):\n                os._exit(0)", "OSError):\n                return"),
    ],
    ("worker.py", PAGES): [('self.send("page", (env, seed, said))', 'self.send("page", None)')],
    ("worker.py", BEGUN): [("error.add_note(lines)", "pass"), ('self.send("failed", error)\n', "pass\n")],
}  # fmt: skip

FAULTS = faults_of("python/agentq/searching", LINES)
