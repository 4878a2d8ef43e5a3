"""Faults in python/agentq/learn/."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

SAMPLES = (
    "test_traps::test_a_sample_longer_than_the_context_is_refused_and_the_longest_is_not "
    "test_traps::test_only_rows_that_predict_the_policys_own_tokens_get_a_gradient "
    "test_traps::test_a_sample_has_the_logps_it_has_alone_also_with_the_pad_token_inside"
)
RESUMED = (
    "test_learn_learner::test_train_resumed_is_bit_equal_to_uninterrupted "
    "test_learn_learner::test_train_visits_every_item_once_an_epoch_in_another_order"
)

LINES: Lines = {
    ("trie_attention.py", "test_learn_attention::test_the_block_mask_is_that_of_all_entries"): [
        ("np.minimum.reduceat(ends, starts) >= last", "np.minimum.reduceat(ends, starts) > starts"),
        ("np.maximum.reduceat(ends, starts) > starts", "np.minimum.reduceat(ends, starts) > starts"),
        (" & (last - starts == BLOCK)[:, None]", ""),
        ("np.fill_diagonal(partial, True)", "pass"),
        ("& ~full", ""),
        ("np.argsort(~blocks, axis=1, kind=\"stable\")", "np.argsort(blocks, axis=1, kind=\"stable\")"),
    ],
    ("value_head.py", "test_value_head"): [
        ("values, returns, torch", "values, old, torch"),
        ("clip=CLIP", "clip=9.0"),
        ("CLIP = 0.2", "CLIP = 0.1"),
        ("normalizer=len(x)", "normalizer=len(at)"),
        ("[turn for i in part.items for turn in range(first[i], first[i + 1])]", "list(range(len(x)))"),
        ("first[-1] + len(item.samples)", "first[-1] + 1"),
    ],
    ("learner.py", "test_value_head"): [
        ('self.optimizer.add_param_group({"params": [head], "weight_decay": 0.0})', "pass"),
        ("torch.zeros_like(head) if head.grad is None else head.grad", "torch.zeros_like(head)"),
    ],
    (
        "learner.py",
        "test_learn_learner::test_update_leaves_the_weights_when_the_loss_is_not_finite_though_its_gradient_is",
    ): [('if not math.isfinite(totals["loss"]):', "if False:")],
    ("sharding.py", "test_learn_sharding::test_processes_that_start_again_do_not_read_what_dead_ones_left"): [
        ("attempt{os.environ['TORCHELASTIC_RESTART_COUNT']}", "attempt"),
    ],
    ("losses.py", "test_learn_losses"): [
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
        ("(error, action_mask, weights=weights, normalizer=normalizer)", "(error, action_mask, weights=weights)"),
    ],
    ("policy_gradient_loss.py", "test_learn_policy_gradient test_learn_importance test_learn_kl"): [
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
    ("steps.py", "test_traps::test_both_sides_log_probabilities_are_reported"): [
        ('"logps/rejected": rejected', '"logps/rejected": chosen'),
    ],
    ("batch.py", SAMPLES): [
        ("if longest > context:", "if False:"),
        ("len(s.token_ids) - 1 for s in samples", "len(s.token_ids) for s in samples"),
        ("np.stack([path[-size:], sample", "np.stack([np.maximum(path[-size:] - 1, 0), sample"),
        ("path[-size:], sample.token_ids,", "path[-size:], sample.token_ids[::-1],"),
        ("np.pad(ids, (0, width - len(ids)))", "np.pad(ids, (width - len(ids), 0))"),
    ],
    ("logps.py", "test_traps::test_a_model_is_packed_only_where_that_changes_nothing"): [
        ("return max(gaps) < rounding(base)", "return False"),
    ],
    ("epochs.py", RESUMED): [
        ('learner.step_count = int(position["step_count"])', "pass"),
        ("np.random.default_rng([self.seed, epoch])", "np.random.default_rng()"),
    ],
}  # fmt: skip

FAULTS = faults_of("python/agentq/learn", LINES)
