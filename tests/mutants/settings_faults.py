"""Faults in settings, seeds, prices, errors and in what is said and noted of a stage while it runs."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

ADDS = "test_accounts::test_usage_is_the_same_behind_its_note_and_adds_up"
COSTS = "test_accounts::test_a_stage_costs_all_that_was_tried_and_what_the_engine_counted"
ASKED = "test_status::test_tasks_that_take_long_to_ask_for_are_counted_and_those_with_a_record_are_not_asked_for_again"
TABLE = (
    "test_accounts::test_counts_are_told_commonest_first_and_then_by_name "
    "test_accounts::test_the_table_says_what_the_world_broke test_accounts::test_the_table_names_an_oracle "
    "test_accounts::test_the_table_has_a_cost_where_there_is_one"
)
LINE = (
    "test_status::test_a_line_counts_successes_and_what_the_world_broke "
    "test_status::test_what_the_world_broke_is_said_with_its_message "
    "test_status::test_a_search_shows_its_rollouts_before_its_first_tree_ends"
)
PAID = "test_status::test_a_stage_that_goes_on_notes_the_time_and_tokens_of_all_its_processes"
TOLD = (
    "test_cli_faults::test_a_message_of_several_lines_is_told_in_one "
    "test_cli_faults::test_faults_of_the_world_are_one_line "
    "test_cli_faults::test_a_fault_of_agentq_keeps_its_traceback "
    "test_cli_faults::test_an_error_is_an_object_where_the_result_would_be "
    "test_cli_faults::test_the_line_to_go_on_with_can_be_pasted"
)

LINES: Lines = {
    ("seeds.py", "test_seeds"): [
        ("task.seed, task.seed >> 32, *parts", "task.seed, *parts"),
        ("part & 0xFFFFFFFF", "part & 0x7FFFFFFF"),
        ("BRANCH = 1 << 22", "BRANCH = 1 << 21"),
        ("SELECTION = 1 << 23", "SELECTION = 1 << 24"),
    ],
    ("config.py", "test_config"): [
        ('self.cached if "cached" in self.model_fields_set else self.prompt', "self.cached or self.prompt"),
    ],
    ("policies/usage.py", f"{ADDS} {COSTS}"): [
        ("new = tally.prompt_tokens - tally.cached_tokens", "new = tally.prompt_tokens"),
        ("self.generated * tally.generated_tokens) / 1e6", "self.generated * tally.generated_tokens) / 1e3"),
        ("tally - then.roles.get(role, Tally()) for", "tally for"),
        ("self.seconds - then.seconds", "self.seconds"),
        ("self.pause_s - then.pause_s", "self.pause_s"),
        ("self.faults + other.faults", "self.faults"),
        ('Counter(engine.get("faults", {}))', "Counter()"),
        ("*(role for role in other.roles if role not in self.roles)", ""),
    ],
    ("recipes/asking.py", ASKED): [
        ("len(missing), start + len(found))", "len(missing), start)"),
        ("known[seeds[len(found)]]", "known[seeds[0]]"),
    ],
    ("progress.py", TABLE): [
        ("-each[1], each[0]", "each[1], each[0]"),
        ("if (rest := row.unbroken) is not None:", "if False:"),
        ("paid = any(row.money for row in rows)", "paid = all(row.money for row in rows)"),
    ],
    ("recipes/stage_line.py", LINE): [
        (
            "self.wins, self.broken = self.wins + bool(success)",
            "self.wins, self.broken = self.wins + (success is not None)",
        ),
        ("self.broken + (success is None)", "self.broken + (not success)"),
        ("sum(n for _, n in self.growing.values())", "len(self.growing)"),
    ],
    ("recipes/stage_line.py", PAID): [
        ('"seconds": self.seconds + self.noted - self.begun', '"seconds": self.noted - self.begun'),
        ("(self.earlier + self.used).to_note()", "self.used.to_note()"),
        ("{**note, **seconds,", "{**seconds,"),
        ("return self._usage().since(self.before)", "return self._usage()"),
    ],
    ("cli/faults.py", TOLD): [
        ("if code == FAULT or os", "if os"),
        ("shlex.join(['agentq', *words])", "' '.join(['agentq', *words])"),
        ('"" if words[:1] in KEEP_NOTHING else', '"" if not words else'),
        ('" ".join(str(error).splitlines()), REFUSED', "str(error), REFUSED"),
        ('    if "--json" in words:\n', "    if False:\n"),
    ],
    ("store/stages.py", "test_store_files::test_a_damaged_record_is_left_out_and_told_and_hides_none_after_it"): [
        ("            continue\n", "            return\n"),
        ("lost.append(str(error))", "pass"),
    ],
}

FAULTS = faults_of("python/agentq", LINES)
