"""Faults in what a run keeps and reads back: lost or repeated work, wrong numbers, a foreign directory taken."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

READS = "test_store_run::test_run_store_reads_back_what_was_added_in_seed_order"
WHOLE = "test_store_run::test_transaction_keeps_all_or_nothing"
IDLE = "test_store_run::test_add_is_idempotent_and_note_is_replaced"
TAKES = "test_partial::test_a_finished_tree_takes_the_place_of_what_was_kept"
METRICS = (
    "test_store_run::test_metrics_drop_a_torn_line_and_count_a_repeated_step_once "
    "test_store_run::test_cut_torn_line_keeps_whole_lines"
)
REFUSES = (
    "test_store_run::test_open_refuses_other_settings_naming_the_first_key "
    "test_store_run::test_open_refuses_a_directory_of_something_else_even_with_clean "
    "test_store_run::test_another_programs_database_is_refused test_store_run::test_a_missing_file_is_named"
)
OLD = "test_store_check::test_an_older_database_is_brought_up_to_date_when_it_is_written"
NOTES = "test_shards::test_shards_are_numbers_from_one_and_notes_add_up"
PAIRS = "test_shards::test_a_merged_run_has_the_pair_settings_of_its_shards"
INPUTS = "test_shards::test_shards_of_other_inputs_are_refused_by_name_and_of_other_code_told"
MERGED = "test_shards::test_a_merged_run_is_the_unfinished_run_of_all_shards"
OTHERS = "test_shards::test_a_shard_that_is_missing_or_has_the_tasks_of_another_is_refused"
FILES = "test_store_files"

LINES: Lines = {
    ("store/run.py", READS): [
        ("(stage, kind or TREE, kind or TRAJECTORY)", "(stage, kind or TREE, TRAJECTORY)"),
        ("(stage, kind or TREE, kind or TRAJECTORY)", "(stage, kind or PARTIAL, kind or TRAJECTORY)"),
        ('ORDER BY seed, key"', 'ORDER BY key"'),
        ('FROM stages ORDER BY id"', 'FROM stages ORDER BY name"'),
        ("rows and rows[0][0] is not None", "rows"),
    ],
    ("store/run.py", f"{WHOLE} {IDLE} {TAKES}"): [
        ("if kind != TRAJECTORY:", "if kind == PARTIAL:"),
        ('self._database.execute("ROLLBACK")', 'self._database.execute("COMMIT")'),
        ("SET note = ? WHERE id = ?", "SET note = ? WHERE id >= ? AND note IS NULL"),
        ('AND kind = ? AND key = ?", place)\n\n', 'AND kind = ? AND key != ?", place)\n\n'),
    ],
    ("store/run.py", "test_store_check::test_a_dictionary_made_in_a_transaction_that_fails_is_made_again"): [
        ("self._blobs.forget()", "pass"),
    ],
    ("store/run.py", FILES): [
        ("            self._metrics = self._lock = None", "            pass"),
        ("            self._check_writable()\n            if self._metrics", "            if self._metrics"),
        ("if kind != TRAJECTORY:", "if kind == TREE:"),
        ("continue  # the writer", "return  # the writer"),
    ],
    ("store/run.py", "test_trackers"): [
        ("            self.track(stage, step, metrics)", "            pass"),
    ],
    ("store/records.py", "test_store_records"): [
        ("(self.parent[1:] >= np.arange(1, n))", "(self.parent[1:] > np.arange(1, n))"),
        ("(self.parent[1:] < 0) | ", ""),
        ("self.value_sum / np.maximum(self.visit_count, 1)", "self.value_sum / (self.visit_count + 1)"),
        ("[kind in WORLD_FAULTS for kind", "[kind is not None for kind"),
        ("max(faults, key=lambda kind: faults[kind])", "min(faults, key=lambda kind: faults[kind])"),
        (" if faults and not self.visit_count[0] else None", " if faults else None"),
        ("before, after, proposal = pages", "after, before, proposal = pages"),
        ('"truncated": bool(result.truncated)', '"truncated": bool(result.terminated)'),
        ('"keeps_pages", "scenario", "tools")', '"scenario", "tools")'),
        ('"keeps_pages", "scenario", "tools")', '"keeps_pages", "tools")'),
        ('"keeps_pages", "scenario", "tools")', '"keeps_pages", "scenario")'),
        ('Language(fields.get("language", Language.WEB))', "Language.WEB"),
        ('tuple(map(Command, fields.get("commands", ())))', "()"),
        ('meta["success"], meta["info"])', 'meta["success"])'),
    ],
    ("store/columns.py", "test_store_records"): [
        ('"explanation", "status", "parse_error"', '"status", "parse_error"'),
        ('page.text.encode("utf-8", "surrogatepass")', 'page.text.encode("utf-8", "replace")'),
        ("if len(told) != length:", "if False:"),
        ("if array.dtype != dtype or array.ndim != 1:", "if array.dtype != dtype:"),
        ("if array.dtype != dtype or array.ndim != 1:", "if array.ndim != 1:"),
        ('"<i4").copy()', '"<i4")'),
        ('"page.node": np.array([i for i, _ in present]', '"page.node": np.array([*range(len(present))]'),
        ('StopReason(fields.pop("stop_reason"))', 'StopReason(fields.pop("stop_reason") and StopReason.EOS)'),
    ],
    ("store/columns.py", "test_store_records test_store_check::test_a_tree_is_read_node_by_node"): [
        ('("page.text", "page.picture", "action.prompt")', '("page.text", "action.prompt")'),
        ("column[tokens if name in", "column[action if name in"),
    ],
    ("store/codec.py", "test_store_records"): [
        ("if column.dtype.str not in DTYPES:", "if False:"),
        ("setdefault(key, len(self._index))", "setdefault(key, len(self._index) - 1)"),
    ],
    ("store/partial.py", "test_partial::test_all_that_is_known_of_the_nodes_comes_back"): [
        ("None if fields is None or page is None else", "None if fields is None or not fields['success'] else"),
        ("for page, fields in zip(pages,", "for page, fields in zip(pages[::-1],"),
    ],
    ("store/files.py", f"{METRICS} {FILES}"): [
        ("now is not None and now > was)", "now is not None and now < was)"),
        ("not (key in grows and", "not ("),
        ("flat_stored.keys() | flat_given.keys()", "flat_stored.keys() & flat_given.keys()"),
        ('if key.split(".")[-1] == "seed"}', 'if key == "run.seed"}'),
        ("models.get(name) != told", "name not in models"),
        ("if told and", "if"),
        ("and not math.isfinite(v)", "and math.isnan(v)"),
        ("os.ftruncate(self._handle, size)", "pass"),
        ('rows[row["stage"], row["step"]] = row', 'rows.setdefault((row["stage"], row["step"]), row)'),
        ('rows[row["stage"], row["step"]] = row', 'rows[row["stage"], number] = row'),
        ("data.removesuffix(_torn(data))", "data"),
        ('and isinstance(row.get("step"), int)', ""),
        ('return b"" if _row(last) is not None or not last else last', 'return b""'),
        ("max(0, end - 1)) + 1 :]", "max(0, end)) + 1 :]"),
    ],
    ("store/claim.py", "test_store_claim"): [
        ('if stored is not None and stored.get("command") != config["command"]:', "if False:"),
        ("elif stored is not None and is_begun(path):", "elif False:"),
        (" or source in place.parents:", ":"),
        ("place == source or place in source.parents", "place == source"),
        ("if place == source or", "if"),
        ("clean=clean or _is_idle(path)", "clean=clean"),
        ("if inputs and store.note(INPUTS) is None:", "if inputs:"),
        ("nothing = _kept_nothing(store)\n", "nothing = True\n"),
        (" or store.metrics():", ":"),
        ("kinds = TREE, TRAJECTORY, PARTIAL", "kinds = TREE, TRAJECTORY"),
        ('return own and not any((store.path / "checkpoints").glob("*"))', "return own"),
        ("return own and not any(", "return not any("),
        ("        if path in made:\n", "        if True:\n"),
        ("if before == str(inputs[key]) else", "if False else"),
        ("json.loads(json.dumps(config))", "config"),
        ("if key in grows:\n", "if False:\n"),
    ],
    ("store/directory.py", f"{FILES} {REFUSES} test_store_disk"): [
        ('found & {"config.json", "run.sqlite"}', 'found & {"config.json", "run.sqlite", "env.json"}'),
        ("if self._key in _held:", "if False:"),
        ("_held.discard(self._key)", "pass"),
        ("            _held.add(self._key)", "            pass"),
        ("_held.clear()", "pass"),
        ('return "one writer" in str(error)', "return True"),
        ('set(OWN_FILES) - {"config.json", *last}', '{"env.json", "metrics.jsonl", "summary.json", "report.html"}'),
        ('cut_torn_line(path / "metrics.jsonl")', "pass"),
        ('clean_up(path / "checkpoints")', "pass"),
        ("if grown or not known:", "if not known:"),
        ("            if stages:\n", "            if False:\n"),
        ("if database_path.is_symlink():", "if False:"),
        ("_check_config(path, stored, config, grows)", "pass"),
    ],
    ("store/directory.py", "test_store_run::test_a_truncated_database_gives_a_store_error"): [
        (" or database_path.stat().st_size == 0:", ":"),
    ],
    ("store/durable.py", f"{FILES} test_store_disk"): [
        ("errno.ENOSPC, errno.EDQUOT, errno.EFBIG}", "errno.ENOSPC}"),
        ("if code == errno.ELOOP:", "if False:"),
        ("            beside.replace(path)\n", "            shutil.copy(beside, path)\n"),
        ("if os.path.lexists(old) and not os.path.lexists(path):", "if os.path.lexists(old):"),
        ("    make_directory(path.parent)\n    restore(path)", "    make_directory(path.parent)"),
        ('directory.rglob(f".*{REPLACED}")', 'directory.glob(f".*{REPLACED}")'),
        ('directory.rglob(f".*{PARTIAL}")', 'directory.glob(f".*{PARTIAL}")'),
        ("if path.is_dir() and not path.is_symlink():", "if path.is_dir():"),
        ("write_whole(Path(os.path.realpath(path)) if follow else path, data)", "write_whole(path, data)"),
        ("write_whole(Path(os.path.realpath(path)) if follow else path,", "write_whole(Path(os.path.realpath(path)),"),
        ("if path.exists() and not path.is_file():", "if path.is_dir():"),
        ('p for p in path.rglob("*") if p.is_file()', 'p for p in path.glob("*") if p.is_file()'),
        ("        if _seal(file) != wanted:", "        if False:"),
        ("        if file.stat().st_size != int(size):", "        if False:"),
    ],
    ("store/durable.py", "test_train_damage::test_a_large_file_is_sealed_by_blocks"): [
        ("* i // (count - 1)", "* i // count"),
        ("(size - BLOCK_BYTES) * i", "size * i"),
    ],
    ("store/merge.py", f"{NOTES} {MERGED} {OTHERS} {PAIRS} {INPUTS}"): [
        ('COUNTS = ("done", "total", "seconds", "usage", "engine")', 'COUNTS = ("done", "total", "usage", "engine")'),
        ("for note in reversed(notes)", "for note in notes"),
        ("isinstance(one, bool) or ", ""),
        ("other[key]) if key in other else value for key", "other.get(key, value)) for key"),
        ("{**other, **{key", "{**{key"),
        ('"words": words, "finished": False}', '"words": words}'),
        ('if not word.startswith("--run.shard=")]', "]"),
        ("_check_same(first, _pairs(one), path, _pairs(store))", "pass"),
        ('key=lambda key: (int(key.partition("/")[0]), key)', "key=lambda key: key"),
        ("_check_inputs(first, one, path, store)", "pass"),
        ('{"shards": facts}', "{}"),
        ("if record.task.seed % n != number - 1:", "if record.task.seed % n == number:"),
        ("number, n = read_shard(text)\n", "number, n = read_shard(text)[0], 2\n"),
    ],
    ("store/stages.py", FILES): [
        ('store._execute("DELETE FROM items WHERE stage IN (SELECT id FROM stages WHERE name = ?)", (stage,))', "pass"),
        ("seed >= ? AND seed < ?", "seed >= ? AND seed <= ?"),
        ("            if task.instruction:\n", "            if True:\n"),
        ("(new, stage))", "(stage, new))"),
    ],
    ("store/check.py", "test_store_check"): [
        ("lost += row.kind != PARTIAL", "lost += 1"),
        ("kept += row.kind != PARTIAL", "kept += 1"),
        ('{"done", "finished", "checkpoints"', '{"done", "checkpoints"'),
        ('{"done", "finished", "checkpoints"', '{"finished", "checkpoints"'),
        ("            if blob_hash(data) != address:\n", "            if False:\n"),
        ('("DESC", "<")', '("ASC", ">")'),
        ("if BROKEN in row.stage + row.key:", "if BROKEN in row.stage:"),
        ("    if out.exists():\n", "    if False:\n"),
        ("                store.log(**line)", "                pass"),
        ("if application != APPLICATION_ID:", "if False:"),
        ("store.set_partial(name, record)", "pass"),
        ("not lost and note is not None, said)", "note is not None, said)"),
        ("broken is None, broken or", "True, broken or"),
        ("return note if isinstance(note, dict) else None", "return note"),
    ],
    ("store/database.py", f"{OLD} {REFUSES} test_store_run::test_another_schema_is_refused"): [
        ("if version == SCHEMA_VERSION or version in MIGRATIONS:", "if version <= SCHEMA_VERSION:"),
        ("for number in range(version, SCHEMA_VERSION):", "for number in range(version, version):"),
        ("user_version = {number + 1};", "user_version = {number};"),
        ("if application != APPLICATION_ID:", "if False:"),
        ("    if writable:\n        _migrate", "    if True:\n        _migrate"),
    ],
    (
        "store/database.py",
        "test_store_disk test_store_check::test_a_run_in_a_folder_that_cannot_be_written_is_whole "
        "test_store_run::test_a_writer_does_not_go_on_with_a_corrupt_index",
    ): [
        ('if mode != "wal":', "if False:"),
        ('if verdict != "ok":', "if False:"),
        ("if code == sqlite3.SQLITE_FULL:", "if False:"),
    ],
    ("store/database.py", FILES): [
        ("and not side_file.exists()", ""),
        ("frozen = not os.access(path.parent, os.W_OK) and", "frozen = False and"),
    ],
    ("store/blobs.py", f"test_store_check test_packed {FILES}"): [
        ("addresses[first : first + _VALUES]", "addresses[:_VALUES]"),
        ("if kind not in known and not preset else", "if kind not in known else"),
        ("if preset and self.dictionaries.get(preset) in known.values():", "if preset:"),
        ("if not stream.eof:", "if False:"),
        ("if len(same) >= ENOUGH:", "if len(same) > ENOUGH:"),
        ("            if address not in known:\n", "            if True:\n"),
        ("            if address not in found:\n", "            if False:\n"),
    ],
    ("store/tables.py", "test_tables"): [
        ('int(key.partition("/")[2] or 0)', 'int(key.partition("/")[0] or 0)'),
        ('"rejected_text": rejected.action.text', '"rejected_text": chosen.action.text'),
        ("_page(tree.observation[parent])", "_page(tree.observation[better])"),
        ("([stage] if stage else known)", "known"),
        ('"mean_value": float(mean[node])', '"mean_value": float(tree.value_sum[node])'),
        ("            **_page(step.observation),", "            **_page(r.observation),"),
        ('"reward": float(r.reward),', '"reward": float(episode.return_),'),
    ],
}

FAULTS = faults_of("python/agentq", LINES)
