"""Faults in what is exported, priced, shown and listed of runs, and in environments behind a server."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

PAIRS = "test_export::test_preferences_are_the_pairs_of_training_as_chats"
WON = "test_export::test_completions_are_the_actions_on_the_way_to_success"
SESSIONS = (
    "test_export::test_sessions_are_what_the_hubs_viewer_of_traces_reads "
    "test_export::test_sessions_of_trees_are_their_best_paths_in_a_new_directory "
    "test_export::test_the_session_of_a_tree_is_the_episode_that_was_chosen"
)
SEEN = "test_export::test_a_prompt_has_what_the_policy_saw_and_held_out_tasks_are_left_out"
OWN = (
    "test_export::test_prompts_are_those_of_the_run "
    "test_export::test_the_command_line_knows_the_formats_and_says_what_is_missing"
)
TOLD = "test_export::test_a_sessions_success_and_return_are_those_that_count_and_its_calls_are_told_apart"
COSTS = "test_accounts::test_a_stage_costs_all_that_was_tried_and_what_the_engine_counted"
TOKENS = "test_remote_bounds::test_only_this_user_knows_the_token_while_the_server_lives"
TOKEN = (
    f"{TOKENS} test_remote_bounds::test_a_token_that_is_none_is_refused "
    "test_remote_bounds::test_a_token_may_be_given_to_both_in_the_environment "
    "test_remote_bounds::test_a_token_left_behind_is_replaced_and_old_ones_are_removed "
    "test_remote_bounds::test_machines_that_share_a_home_have_a_token_each"
)
SOCKET = (
    "test_remote_bounds::test_a_unix_socket_is_its_users_and_needs_no_token "
    "test_remote_bounds::test_a_listener_removes_its_own_file_only"
)
NAMED = (
    "test_shards::test_shards_are_numbers_from_one_and_notes_add_up "
    "test_trackers::test_trackers_are_named_with_commas_or_in_a_list"
)
SHOWN = (
    "test_view::test_the_page_has_every_item_with_its_row_and_data "
    "test_view::test_an_episode_is_a_tree_without_branches_and_tells_why_it_stopped "
    "test_view::test_pairs_are_those_of_training_and_the_rest_says_why "
    "test_view::test_each_action_has_its_own_tokens "
    "test_view::test_the_row_of_a_tree_is_of_the_episode_that_counts_and_pages_are_told_apart"
)
NAMES = (
    "test_remote_bounds::test_a_listener_takes_the_place_of_no_other_file "
    "test_remote_bounds::test_a_served_environment_has_a_name_and_an_address "
    "test_remote_bounds::test_a_port_that_is_none_is_refused"
)
RESET = "test_remote::test_a_reset_that_fails_is_tried_once_more"
USED = "test_remote::test_sessions_are_used_again_and_no_more_than_may_be"
SPOKEN = "test_remote_protocol"

LINES: Lines = {
    ("export.py", f"{PAIRS} {SEEN}"): [
        ("_answer(tree, better), _answer(tree, worse)", "_answer(tree, worse), _answer(tree, better)"),
        ("prompt = compose(_history(tree, int(tree.parent[better])))", "prompt = compose(_history(tree, int(better)))"),
        ("history.then(history_text(proposal.action) if", "history.then(proposal.action.text if"),
        ("History.of(tree.task, pages[0])", "History.of(tree.task, pages[-1])"),
        ("if form in ALL_STAGES or name.endswith(COLLECTED)]", "]"),
    ],
    ("export.py", f"{WON} {SEEN}"): [
        ('"completion": _answer(tree, step + 1)}', '"completion": _answer(tree, step)}'),
        ("compose(_history(tree, step)), ", "compose(_history(tree, step + 1)), "),
        (
            '"prompt": compose(_history(tree, int(tree.parent[node]))), "completion"',
            '"prompt": compose(_history(tree, 0)), "completion"',
        ),
        ('"user": "human"', '"user": "gpt"'),
        ('[*row["prompt"], *row["completion"]]', '[*row["prompt"][-1:], *row["completion"]]'),
        ("for step in success_steps(episode):", "for step in range(len(episode.steps)):"),
        ("read = [stage] if stage else", "read = known if stage else"),
    ],
    ("export.py", f"{SESSIONS} {TOLD}"): [
        ("if value is not None}", "if value}"),
        ('"return": t.return_}', '"return": float(t.success)}'),
        ('"success": t.success, "return"', '"success": t.steps[-1].result.success, "return"'),
        ('page = {"content": step.result.observation.text}', 'page = {"content": step.observation.text}'),
        ('call = f"call_{number}"', 'call = "call"'),
        ('if "toolCalls" in answer else {"role": "user"}', ""),
        ("for key, episode in chain(counted, told):", "for key, episode in told:"),
        ("for key, episode in chain(counted, told):", "for key, episode in counted:"),
        ("filter(None, (action.plan, action.thought))", "filter(None, (action.plan,))"),
        ("any(out.iterdir()))", "False)"),
        ('["id"].replace("/", "-")', '["id"].rpartition("/")[2]'),
    ],
    ("export.py", "test_trackers::test_an_export_is_pushed_to_a_private_dataset"): [
        ("private=True", "private=False"),
        ("if out.is_dir():\n            api", "if False:\n            api"),
    ],
    ("export.py", OWN): [
        (
            'compose: Compose = from_file(given, "model.prompt") if given else policy_messages',
            "compose: Compose = policy_messages",
        ),
        ("    if not lines:\n", "    if False:\n"),
    ],
    ("recipes/accounts.py", COSTS): [
        ('[used(t), t.info.get("retried", {}), t.info.get("repeats", {})]', '[used(t), t.info.get("repeats", {})]'),
        ('[used(t), t.info.get("retried", {}), t.info.get("repeats", {})]', '[used(t), t.info.get("retried", {})]'),
        ("recorded if recorded.prompt_tokens else counted", "counted"),
        ("recorded if recorded.prompt_tokens else counted", "recorded"),
        ("(counted if counted.requests else recorded)", "recorded"),
        ("(counted if counted.requests else recorded)", "counted"),
        ('usage.roles.pop("policy", Tally())', 'usage.roles.get("policy", Tally())'),
        ("[tree.info for tree in store.trees(stage, nodes=())]", "[]"),
    ],
    ("recipes/pipeline.py", "test_evaluation_endings"): [
        ("[a.broken or b.broken for", "[a.broken and b.broken for"),
        ("if len(base) != len(outcomes):", "if False:"),
        ("if all(broken):", "if False:"),
        (
            "[a.success for a in outcomes], [b.success for b in base], broken=broken",
            "[b.success for b in base], [a.success for a in outcomes], broken=broken",
        ),
    ],
    ("status.py", "test_status"): [
        ("self.before = done if grown else max(0, done - 1)", "self.before = 0"),
        ("max(0.0, rest - grown)", "max(0.0, rest)"),
        ("(rest - in_flight / 6)", "rest"),
        ("(done - self.before + grown)", "(done + grown)"),
        ("if s.seconds is None and s.name != but]", "if s.seconds is None]"),
        ("s.seconds / max(1, s.items) for s", "s.seconds for s"),
        ('f"{minutes // 60} h {minutes % 60:02d} min"', 'f"{minutes // 60} h {rest:02d} min"'),
        ('self.name.rpartition("/")[2]', 'self.name.partition("/")[2]'),
    ],
    (
        "results.py",
        "test_tables test_evaluation_endings test_api::test_evaluate_counts_what_the_world_broke "
        "test_api::test_evaluate_counts_with_wilsons_interval_in_the_order_of_tasks",
    ): [
        ("return wilson(self.successes, self.n)", "return wilson(self.n - self.successes, self.n)"),
        ("return sum(t.broken for t in self.episodes)", "return sum(not t.success for t in self.episodes)"),
        ("percents(gain['low'], gain['high'])", "percents(rung.low, rung.high)"),
    ],
    ("results.py", "test_evaluation_outcomes test_compare::test_evaluations_are_compared_too"): [
        ("return compare(self.episodes, other.episodes)", "return compare(other.episodes, self.episodes)"),
        ("return bool(self.tree.success.any())", "return bool(self.tree.success[-1])"),
    ],
    ("run_settings.py", NAMED): [
        ("1 <= int(number) <= int(total)", "0 <= int(number) <= int(total)"),
        ("1 <= int(number) <= int(total)", "1 <= int(number)"),
        ("return list(dict.fromkeys(names))", "return names"),
    ],
    ("report/runs.py", "test_runs"): [
        (
            '"running" if held else "finished" if ended else "stopped"',
            '"finished" if ended else "running" if held else "stopped"',
        ),
        ("last = rows[-1]", "last = rows[0]"),
        ("max(numbers, default=0)", "len(numbers)"),
        ('(store.note(stage) or {}).get("finished")', "True"),
        ('"running" if held else "damaged"', '"damaged"'),
        ("range(DEEP, 0, -1)", "range(DEEP - 1, 0, -1)"),
    ],
    ("viewer/data.py", SHOWN): [
        ("parent=index - 1,", "parent=np.where(index, 0, -1),"),
        (
            "SOLVED if solved(tree) else BROKEN if tree.fault else FAILED",
            "SOLVED if tree.success.any() else BROKEN if tree.fault else FAILED",
        ),
        ("BROKEN if t.fault else SOLVED if t.success else FAILED", "SOLVED if t.success else FAILED"),
        ('"pairs": sum(not pair.dropped for pair in weighed)', '"pairs": len(weighed)'),
        ("int(tree.depth[counted_end(tree)])", "int(tree.depth.max())"),
        ("[p.chosen, p.rejected, round(p.gap, 4), p.dropped]", "[p.rejected, p.chosen, round(p.gap, 4), p.dropped]"),
        ("key = page.url, page.text, shot", 'key = page.url, page.text, ""'),
        ("key = page.url, page.text, shot", 'key = "", page.text, shot'),
        ("values[end - length : end]", "values[end - length : end - 1]"),
    ],
    ("envs/remote/token.py", TOKEN): [
        ("return secrets.compare_digest(", "return True or secrets.compare_digest("),
        ("os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)", "os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)"),
        ("elif len(self.value) not in _LENGTHS:", "elif False:"),
        ('everywhere = host == "0.0.0.0" or host.startswith("127.")', 'everywhere = host == "0.0.0.0"'),
        ("            self.file.unlink(missing_ok=True)", "            pass"),
        ("filter(processes.is_stale, ours)", "ours"),
        ("    if value := os.environ.get(VARIABLE):\n        return value\n", ""),
    ],
    ("envs/remote/env_server.py", TOKEN): [
        ("if self.token is not None and not self.token.accepts(given):", "if False:"),
        ("self.token = None if is_path(at) else", "self.token = None if True else"),
        ('args.pop("token", None)', 'args.get("token", None)'),
    ],
    ("envs/remote/address.py", SOCKET): [
        ("            os.chmod(at, 0o600)\n", ""),
        ("if self._file is not None and self._found() == self._file:", "if self._file is not None:"),
        ("            connect(self.at, 1.0).close()\n", "            raise ConnectionRefusedError\n"),
    ],
    ("envs/remote/address.py", NAMES): [
        ("if not env or not at:", "if not at:"),
        ("and int(port) <= 65535", ""),
        ("if not stat.S_ISSOCK(mode):", "if False:"),
    ],
    ("envs/remote/client.py", f"{RESET} {USED}"): [
        ("_ATTEMPTS = 2", "_ATTEMPTS = 1"),
        ("if not greet(name).expert:", "if False:"),
        ("_keep(self.name, session)", "session.hang_up()"),
        ("        self._session = None\n        self.lost", "        self.lost"),
    ],
    ("envs/remote/client.py", "test_remote::test_names_and_what_is_not_offered"): [
        ("if session.hello.name != env:", "if False:"),
    ],
    ("envs/remote/connection.py", SPOKEN): [
        ('if answer.get("id") != number:', "if False:"),
        ("Until(self._socket, lambda: end)", "Until(self._socket, lambda: time.monotonic() + deadline_s)"),
        ("if answer is None:", "if False:"),
    ],
    ("envs/remote/env_process.py", f"{SPOKEN} {RESET}"): [
        ("if protocol != PROTOCOL:", "if False:"),
        ('if message.get("call") not in CALLS:', "if False:"),
        ('and message.get("call") != "hello"', ""),
    ],
}

FAULTS = faults_of("python/agentq", LINES)
