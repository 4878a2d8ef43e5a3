"""Checks of what a model reads: tokenizer, chat template, end token. The model itself is loaded here."""

from __future__ import annotations

from pathlib import Path

from agentq.agent.actions import format_action, parse_action
from agentq.doctor import Diagnosis, Patient, Verdict
from agentq.errors import require
from agentq.policies.engine_names import check_checkpoint, make_engine, path_in
from agentq.policies.protocol import Gives
from agentq.types import Command, EnvAction

ANSWER = format_action(EnvAction(Command.TYPE, 12, "Café Noir, 7:30 PM"), thought="the date is set , now the name")
SYSTEM, SAID = "agentqsystem", "agentqanswer"
CHAT = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "agentquser"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": SAID}]
NO_TOKENIZER = Diagnosis("skipped", "there is no tokenizer to check here")


def tokenizer(p: Patient) -> Diagnosis:
    """The tokenizer loads, and an action that is encoded and decoded is the same action."""
    path = path_in(p.model)
    if path is None:
        return Diagnosis("skipped", f"{p.model} names no tokenizer")
    from agentq.policies.renderer import load_renderer

    check_checkpoint(p.model)
    p.renderer = load_renderer(path)
    back = p.renderer.decode(p.renderer.encode_answer(ANSWER))
    if back != ANSWER:
        same = parse_action(back).env_action == parse_action(ANSWER).env_action
        found = (
            f"{'a text' if same else 'an action'} changes when it is encoded and decoded: {ANSWER!r} becomes {back!r}"
        )
        return Diagnosis("warn" if same else "fail", found, "use the tokenizer that the model was trained with")
    return Diagnosis("ok", f"{len(p.renderer.tokenizer):,} tokens; text survives encoding and decoding")


def model(p: Patient) -> Diagnosis:
    """The model loads, or its server answers; what it reports besides text."""
    check_checkpoint(p.model)
    if isinstance(p.model, Path):
        require("torch", extra="train", for_="a model in this process")
    p.engine = make_engine(p.model, p.settings, p.vllm)
    p.renderer = getattr(p.engine, "renderer", None) or p.renderer
    reports = [str(flag.name).lower().replace("_", " ") for flag in Gives if flag in p.engine.gives]
    found = f"{p.engine.name} answers with {', '.join(['text', *reports])}"
    if Gives.SEEDS not in p.engine.gives:
        return Diagnosis("warn", f"{found}; it ignores seeds", "a run cannot be repeated exactly; vLLM honours seeds")
    if not getattr(p.engine, "shares_columns", True):
        return Diagnosis("warn", f"{found}; prompts are computed one by one", f"vllm:{p.model} is several times faster")
    return Diagnosis("ok", found)


def template(p: Patient) -> Diagnosis:
    """There is a chat template, and a chat of several turns begins with the text of its first turn."""
    if p.renderer is None:
        return NO_TOKENIZER
    if not p.renderer.tokenizer.chat_template:
        found = "the tokenizer has no chat template, so prompts are plain text"
        return Diagnosis("warn", found, "use an instruction-tuned checkpoint, or add its chat_template.jinja")
    first = _text(p, CHAT)
    try:
        whole = _text(p, ANSWERED)
    except Exception as error:  # a template may raise anything
        found = f"the template takes no answers: {' '.join(str(error).split())[:120]}"
        return Diagnosis("warn", found, "agentq asks in one turn; chats of several turns need another template")
    if not whole.startswith(first + SAID):
        same = next((i for i, (a, b) in enumerate(zip(first + SAID, whole, strict=False)) if a != b), len(whole))
        found = f"not prefix-preserving: a second turn changes the text before it, from {whole[same : same + 30]!r} on"
        return Diagnosis("warn", found, "agentq asks in one turn; do not train chats of several turns with it")
    return Diagnosis("ok", "a second turn leaves the text before it unchanged")


def end_token(p: Patient) -> Diagnosis:
    """An answer that is trained on ends like one in the template, or the template goes on with another end token.

    All tokens of `encode_answer` are in the loss mask. If the template's end token is not among them, the model never
    learns to end. GLM's template writes none: the next turn's first token ends its answers.
    """
    if p.renderer is None:
        return NO_TOKENIZER
    own, name = p.renderer.tokenizer, p.renderer.tokenizer.convert_ids_to_tokens
    last = int(p.renderer.encode_answer(ANSWER)[-1])
    if not own.chat_template:
        return Diagnosis("ok", f"{name(last)} is in the loss mask")
    try:
        rest = _text(p, [*ANSWERED, {"role": "user", "content": "Go on."}]).rpartition(SAID)[2]
    except Exception:  # a template may raise anything
        return Diagnosis("skipped", "the template takes no answers")
    controls = {*own.all_special_ids, *own.added_tokens_decoder}
    ids = own(rest, add_special_tokens=False, verbose=False)["input_ids"]
    end = next((token for token in ids if token in controls), None)
    if end in p.renderer.end_ids:
        return Diagnosis("ok", f"{name(last)} is in the loss mask")
    written = "no end token" if end is None else name(end)
    return Diagnosis(
        "fail",
        f"outside the loss mask: the template ends an answer with {written}, training with {name(last)}",
        "make both the same: eos_token in tokenizer_config.json and eos_token_id in generation_config.json",
    )


def system_role(p: Patient) -> Diagnosis:
    """The system message, which gives the form of actions, reaches the model, or the model does not need it."""
    if p.renderer is None:
        return NO_TOKENIZER
    if SYSTEM in _text(p, CHAT):
        return Diagnosis("ok", "the system message reaches the model")
    found = "the template leaves out the system message, which gives the form of actions"
    if p.readable is not None and p.readable >= 0.75:
        return Diagnosis("ok", f"{found}; the model was trained without it")
    verdict: Verdict = "fail" if p.readable == 0 else "warn"
    return Diagnosis(verdict, found, "give the tokenizer a template with a system role")


def _text(p: Patient, messages: list[dict[str, str]]) -> str:
    """The text of a chat as the model reads it, its special tokens included."""
    return str(p.renderer.tokenizer.decode(p.renderer.encode(messages).tolist(), skip_special_tokens=False))
