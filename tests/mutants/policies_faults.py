"""Faults in python/agentq/policies/."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

ANSWERS = (
    "test_traps::test_an_answer_is_tokenized_alone_wherever_a_text_is_cut "
    "test_traps::test_a_beginning_token_stands_once_and_first"
)
WINDOWS = "test_architectures::test_log_probabilities_are_those_of_a_plain_forward_pass"
LLAMA = "test_growing test_small_llama::test_rows_of_any_length_and_branches_give_the_logits_of_a_plain_forward_pass"

LINES: Lines = {
    ("weights.py", "test_traps::test_a_fingerprint_tells_weights_tokenizers_and_templates_apart"): [
        ('MODEL_FILES = (".safetensors", ', "MODEL_FILES = ("),
        ("if file.suffix in MODEL_FILES:", "if True:"),
    ],
    ("renderer.py", ANSWERS): [
        ('add_special_tokens=False, verbose=False)["input_ids"]\n        return',
         'verbose=False)["input_ids"]\n        return'),
        ('add_special_tokens=False, verbose=False)["input_ids"]\n        else',
         'verbose=False)["input_ids"]\n        else'),
    ],
    ("decoding.py", "test_draws"): [
        ("torch.log_softmax(logits, dim=-1)",
         "torch.log_softmax(logits / torch.where(warm, temperatures[:, None], 1.0), dim=-1)"),
        ("torch.softmax(allowed / ",
         "torch.softmax(allowed.where(allowed >= allowed.topk(20)[0][..., -1:], -torch.inf) / "),
    ],
    ("columns.py", WINDOWS): [
        ("windowed = (behind >= 0)", "windowed = (behind > 0)"),
        ("last += range(at, len(ids))", "last += [at] * len(growth.tokens)"),
    ],
    ("columns.py", LLAMA): [
        ("np.eye(count, dtype=bool)", "np.ones((count, count), dtype=bool)"),
        ("before[list(parents)]", "before[[0] * count]"),
        ("self.depths[-1] + 1 if self.depths else 0", "len(self.depths)"),
        ("self.depths += [depth] * count", "self.depths += [0] * count"),
        ("buffer[:, :, :, :filled] = held", "pass"),
        ("torch.cat(self.known, dim=3, out=self._states[:, :, :, : self.num_cached])", "pass"),
    ],
    ("columns.py", "test_slots"): [
        ("self.slots.reserve(self.length)", "pass"),
        ("finalize(self, self.slots.give_back, self.slot).atexit = False", "pass"),
        ("self.slot = self.slots.take(self.length + ROOM", "self.slot = self.slots.take(ROOM"),
        ("layer[:, self.slot, :, : len(self.prompt)]", "layer[:, 0, :, : len(self.prompt)]"),
        ("states[:, self.slot, :, : self.num_cached] = known", "pass"),
    ],
    ("attention.py", LLAMA): [
        ("mask = np.tri(count, p.length, p.length - count, dtype=bool)", "pass"),
    ],
    ("attention.py", "test_slots"): [
        ("if windowed not in self._batches:", "if not self._batches:"),
        ("if (p.start, windowed) not in self._masks:", "if True not in [w for _, w in self._masks]:"),
    ],
    ("slots.py", "test_slots"): [
        ("grown[:, :before, :, :filled] = layer", "pass"),
        ("2 * slots if all(self._taken) else slots", "2 * slots"),
        ("max(room, _rounded(length, ROOM)))\n        slot", "room)\n        slot"),
        ("self._taken[slot] = False\n", "pass\n"),
        ("if not any(self._taken):", "if False:"),
        ("np.tri(n, p.length, p.length - n, dtype=bool) if mask is None", "True if mask is None"),
        ("p.length - n + i, slot * width + i", "p.length - 1, slot * width + i"),
        ("query.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)", "query.new_zeros(hidden.shape)"),
        (".view(count, width, heads, groups, size).permute(0, 2, 3, 1, 4)",
         ".view(count, width, groups, heads, size).permute(0, 3, 2, 1, 4)"),
        ("out[self.tokens] = found", "out[: len(found)] = found"),
        ("scale=scale", "scale=1.0"),
    ],
    ("decoding.py", "test_slots"): [
        ("del a.row, a.growth", "pass"),
    ],
    ("llama.py", LLAMA): [
        ("each.self_attn.q_proj, each.self_attn.k_proj", "each.self_attn.k_proj, each.self_attn.q_proj"),
        ("each.mlp.gate_proj, each.mlp.up_proj", "each.mlp.up_proj, each.mlp.gate_proj"),
        ("_numbers(each.input_layernorm)", "_numbers(each.post_attention_layernorm)"),
        ("decoder.layers[0].self_attn.scaling\n        self.core", "1.0\n        self.core"),
        ("[p.open for p in rows], [p.own", "[0 for p in rows], [p.own"),
        ("torch.cat([-sin[..., :half], sin[..., half:]]", "torch.cat([sin[..., :half], -sin[..., half:]]"),
        ("torch.addcmul(turned * cos, turned.roll(half, dims=-1), sin)", "torch.addcmul(turned * cos, turned, sin)"),
        ("pieces, True, self.scale)", "pieces, True, 1.0)"),
        ("x = torch.addmm(x, seen.reshape(len(x), -1), w.o)", "x = seen.reshape(len(x), -1) @ w.o"),
        ("self._normed(x, w.mlp_norm) @ w.gate_up", "self._normed(x, w.norm) @ w.gate_up"),
        ("silu(gate).mul_(up)", "silu(up).mul_(gate)"),
        ("return self._normed(x, self.norm)[pieces.last]", "return x[pieces.last]"),
        ("_joined(a.q_proj, a.k_proj, a.v_proj)", "_joined(a.q_proj, a.v_proj, a.k_proj)"),
        ("and is_small(model)", "and not is_small(model)"),
    ],
    ("llama.py", "test_model_settings::test_on_a_cpu_a_small_model_runs_in_float32_and_no_large_one_in_float16_where_"
                 "bfloat16_is_fast"): [
        ("        return torch.float32\n", "        return own\n"),
        ("if own == torch.float16 and", "if"),
        ('multiplies_bfloat16("cpu") else own', "True else own"),
    ],
    ("placement.py", "test_model_settings::test_devices_are_named_as_people_name_them "
                     "test_model_settings::test_the_type_on_a_cpu_is_the_checkpoints_where_it_multiplies_bfloat16 "
                     "test_model_settings::test_the_type_on_a_gpu_is_bfloat16_unless_another_is_given "
                     "test_model_settings::test_threads_are_those_given_or_one_for_a_small_model "
                     "test_model_settings::test_several_devices_are_for_vllm"): [
        ("range(int(first), int(last or first) + 1)", "range(int(first), int(last or first))"),
        ("max(wanted) >= gpus", "max(wanted) > gpus"),
        ('return ("cuda:0",) if gpus', 'return ("cuda:1",) if gpus'),
        ("if multiplies_bfloat16(device) else torch.float32", "if True else torch.float32"),
        ("        return torch.bfloat16\n", '        return "auto"\n'),
        ('("avx512_bf16", "amx_bf16", "bf16")', '("avx512_bf16", "avx2")'),
        ("wanted = 1 if small else cores", "wanted = cores"),
        ("if len(devices) > 1:", "if len(devices) > 9:"),
    ],
    ("function_policy.py", "test_api::test_an_interrupt_ends_a_call_whose_policy_never_waits"): [
        ("await asyncio.sleep(0)  # a plain function", "pass  # a plain function"),
        ("await asyncio.sleep(0)  # as above", "pass  # as above"),
    ],
    ("openai_chats.py", "test_openai_deviations::test_usage_of_one_of_several_choices_stands_for_all"): [
        ("if self.counts_one:", "if True:"),
        ("if self.counts_one:", "if False:"),
    ],
}  # fmt: skip

FAULTS = faults_of("python/agentq/policies", LINES)
