// The acts that need a document's DOM, and when it has settled. See page.js.
// Whether anything here may change the page by itself: a script, a frame, a handler in an attribute, a listener.
const moving = "boolean(//@*[starts-with(name(), 'on') or name() = 'agentq-clicks' or starts-with(., 'javascript:')])";
const scripted = () =>
  document.scripts.length + frames.length > 0 || document.evaluate(moving, document, null, 3, null).booleanValue;

const tell = (el, ...types) => types.forEach((t) => el.dispatchEvent(new Event(t, { bubbles: true, composed: true })));
const acts = {
  put(el, value) {
    el.focus();
    if (el.isContentEditable) el.textContent = value;
    else el.value = value; // the native setter: this world does not see a framework's
    tell(el, "input", "change");
  },
  choose(el, [index, label]) {
    const option = el.options[index], now = option ? calledIn(el)[index] : null;
    if (now !== label) return { now }; // the page has changed its options since they were read
    if (el.matches(":disabled")) return "disabled";
    if (option.matches(":disabled")) return "option";
    if (el.multiple) option.selected = !option.selected;
    else el.selectedIndex = index;
    tell(el, "input", "change");
  },
  submit(el) {
    const form = el.form ?? el.closest("form");
    const submits = /^(submit|image)$/.test(el.type) && /^(button|input)$/.test(el.localName);
    form.requestSubmit(submits ? el : Array.from(form.elements).find((b) => /^(submit|image)$/.test(b.type) && !b.disabled));
  },
  check(el, on) { if (el.checked !== on) el.click(); },
  value(el, value) { // of a field that keys cannot fill
    const field = inner(el), before = field.value;
    if (field.matches(":disabled")) return "disabled";
    if (field.readOnly) return "readonly";
    field.focus();
    field.value = value;
    if (field.value !== value) { field.value = before; return "form"; }
    tell(field, "input", "change");
  },
  leave() { document.activeElement?.blur(); },
  show(el) { el.scrollIntoView({ block: "start", behavior: "instant" }); },
};
// Whether the act was done, or why it was not; false if the element is gone.
const act = (verb, key, value) => { const el = find(key); return !!el && (acts[verb](el, value) ?? true); };

// How an element is typed into: by keys, by an editor, as a value, as a color, as the value of a range but for its last
// step, by the keys of a slider, as a cell of a table, which opens for it. "" if it is gone, "disabled" if nothing can be
// typed. It gets the focus, unless it is a cell.
const FIELD = "input:not([type=hidden]),textarea,[contenteditable]";
const inner = (el) => /^(input|textarea)$/.test(el.localName) || el.isContentEditable ? el : el.querySelector(FIELD) ??
  (el.tabIndex >= 0 ? el : el.querySelector("[tabindex='0']") ?? el);
function focus(key) {
  const el = find(key);
  if (!el) return "";
  if (/^(grid)?cell$/.test(roleOf(el)) && !el.isContentEditable && !el.querySelector(FIELD)) return "cell";
  el.scrollIntoView({ block: "nearest", behavior: "instant" });
  const field = inner(el);
  if (field.matches(":disabled")) return "disabled";
  field.focus();
  if (/^(range|color)$/.test(field.type)) return field.type;
  if (FORMATS[field.type] && !/^(email|url|tel|password)$/.test(field.type)) return "value";
  return field.isContentEditable ? "editor" : "value" in field ? "keys" : roleOf(el) === "slider" ? "slider" : "editor";
}
// Whether a field over a cell has the focus, once the page has drawn it.
const opened = async (key) => {
  await new Promise((done) => setTimeout(done, 50));
  const el = find(key), field = active(document);
  if (!el || !field?.matches(FIELD)) return false;
  const [a, b] = [el, field].map((each) => each.getBoundingClientRect());
  return b.width > 1 && b.height > 1 && b.left < a.right && b.right > a.left && b.top < a.bottom && b.bottom > a.top;
};
// How a field takes line breaks: "text" as characters, "keys" by Shift and Enter, "" not at all.
function several(key) {
  const el = find(key), field = el && inner(el);
  if (field?.localName === "textarea") return "text";
  return !field?.isContentEditable ? "" : field.closest(EDITORS) ? "text" : "keys";
}
// What a field holds after typing, if that is not what was typed; of an editor that keeps its text elsewhere, what is shown
// around it. Lines are compared where several were typed.
function holding(key, typed) {
  const el = find(key), now = active(document);
  if (!el) return null;
  const field = encloses(el, now) ? now : el, box = field.closest(EDITORS), own = field.value ?? field.innerText ?? "";
  const plain = !typed.includes("\n") ? squeeze : (text) => text.split("\n").map(squeeze).filter(Boolean).join("\n");
  if (plain(own) === plain(typed)) return null;
  const held = box ? written(box) : plain(own);
  return box && held === squeeze(typed) ? null : held;
}
const active = (root) => (root.activeElement?.shadowRoot ? active(root.activeElement.shadowRoot) : root.activeElement);
// What a slider without a field shows, once the page has drawn it: [now, least, most].
const slid = async (key) => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return ["now", "min", "max"].map((end) => Number(find(key)?.getAttribute(`aria-value${end}`) ?? NaN));
};
// Brings a range to the step beside `value`. The key that leads from there to `value`: a page may keep a value only then.
// A range without steps is brought to `value` itself, and needs no key.
function beside(key, value) {
  const el = inner(find(key)), back = getComputedStyle(el).direction === "rtl";
  el.value = value;
  if (/^any$/i.test(el.step)) return void tell(el, "input", "change");
  const wanted = el.value;
  el.stepDown();
  const up = el.value !== wanted;
  if (!up) el.stepUp();
  tell(el, "input");
  return up === back ? "ArrowLeft" : "ArrowRight";
}
const kind = (key) => { const el = find(key), field = el && inner(el); return field?.type ?? field?.localName; };
const fileOf = (key) => { const el = find(key); return [el?.control, el].find((each) => each?.type === "file") ?? null; };
const formOf = (key) => { const el = find(key); return !!(el?.form ?? el?.closest("form")); };

// Once the animations on an element's way have ended, those that end, and something of it has a size, which an icon gets
// from its image; but no later than `most_ms`. The number of animations.
const finite = (each) => each.playState === "running" && each.effect?.getComputedTiming().endTime !== Infinity;
const still = (key, most_ms) => {
  const el = find(key), moving = document.getAnimations().filter((each) => finite(each) && each.effect.target && encloses(each.effect.target, el));
  let over;
  const size = new Promise((done) => (function ask() { over || !el || el.shadowRoot || [el, ...(el.labels ?? [])].some(sized) ? done() : requestAnimationFrame(ask); })());
  const ends = Promise.allSettled([size, ...moving.map((each) => each.finished)]);
  return Promise.race([ends, new Promise((done) => setTimeout(done, most_ms))]).then(() => { over = true; return moving.length; });
};

// Scroll what lies in the middle of the window, else the document, by most of its height; whether anything moved.
function scroll(way) {
  const down = way === "DOWN" ? 1 : -1, room = (el) => (down > 0 ? el.scrollHeight - el.clientHeight - el.scrollTop : el.scrollTop) > 1;
  const around = ({ ownerDocument: page }) => (page === document ? null : page.defaultView.frameElement);
  const framed = (el) => around(el) && el === el.ownerDocument.scrollingElement && getComputedStyle(el).overflowY !== "hidden";
  let box = shownAt(document, innerWidth / 2, innerHeight / 2);
  while (box && !((scrolls(box) || framed(box)) && room(box))) box = box.parentElement ?? box.getRootNode().host ?? around(box);
  const page = document.scrollingElement ?? document.documentElement;
  const large = () => Array.from(document.querySelectorAll("*")).filter((el) => scrolls(el) && room(el) && visible(el))
    .sort((a, b) => b.clientHeight * b.clientWidth - a.clientHeight * a.clientWidth)[0];
  const chosen = box ?? (room(page) ? page : large());
  chosen?.scrollBy({ top: down * 0.8 * chosen.clientHeight, behavior: "instant" });
  return !!chosen;
}
// What is hit, in whatever frame that is read as a part of this document.
function shownAt(root, x, y) {
  const hit = deepest(root, x, y), body = hit && bodyOf(hit);
  if (!body) return hit;
  const at = inset(hit, 0, 0);
  return shownAt(body.ownerDocument, x - at.x, y - at.y) ?? hit;
}
const bodyOf = (el) => /^i?frame$/.test(el.localName) ? bodyIn(el) : null;
const scrolled = () => [Math.round(scrollX), Math.round(scrollY)];

// Bring the next place with a text into view: [its number, how many there are].
let sought = { text: "", number: 0 };
function seek(text) {
  const wanted = squeeze(text).toLowerCase(), hits = [];
  const has = (node) => squeeze([node.value, node.textContent, node.ariaLabel, node.placeholder].filter((each) => typeof each === "string").join(" ")).toLowerCase().includes(wanted);
  const walk = (el) => {
    if (SKIPPED.has(el.localName) || (el.nodeType === 1 && hidden(el))) return false;
    let within = false;
    const body = bodyOf(el);
    for (const kid of body ? [body] : children(el)) if (kid.nodeType === 1 && walk(kid)) within = true;
    if (!within && has(el) && el.checkVisibility?.()) hits.push(el);
    return within || hits.at(-1) === el;
  };
  if (document.body) walk(document.body);
  sought = { text: wanted, number: sought.text === wanted ? sought.number % Math.max(1, hits.length) + 1 : 1 };
  hits[sought.number - 1]?.scrollIntoView({ block: "center", behavior: "instant" });
  return [sought.number, hits.length];
}

// Of the element's own document, which may lie in a frame; "null" where it has none.
const origin = (key) => find(key)?.ownerDocument.defaultView?.origin ?? "null";

// Whether the page's scripts have announced something for the next `ms` milliseconds (announced.js).
const ask = (question, detail) =>
  !document.dispatchEvent(new CustomEvent(`agentq-${question}`, { detail, cancelable: true }));
const due = (ms) => frames.length > 0 || ask("due", ms);

// Put a document without scripts in the place of another, by the HTML that `turn` told; false if that is not exact.
function putBack(came, url) {
  if (scripted() || document.compatMode !== "CSS1Compat" || new URL(url).origin !== location.origin) return false;
  const parsed = new DOMParser().parseFromString(`<!doctype html>${came}`, "text/html");
  document.replaceChild(document.adoptNode(parsed.documentElement), document.documentElement);
  history.replaceState(null, "", url);
  scrollTo(0, 0);
  fresh();
  return document.documentElement.outerHTML === came;
}

// What the page shows once its task queue has come round, if it is settled then; `quiet_ms`: see quiet. With the HTML that
// a document without scripts came with, unless it is the one `read` last. A window that has closed itself is here for a
// moment more, and has nothing to show.
async function turn(quiet_ms, announces, read) {
  await new Promise(setTimeout);
  if (closed) return { rule: "", closed };
  const rule = !scripted() ? "loaded" : announces && !due(quiet_ms) ? "quiet" : "";
  const seen = rule && look();
  if (rule === "loaded" && document.readyState === "complete" && document.compatMode === "CSS1Compat") {
    html ??= document.documentElement.outerHTML;
    if (world !== read) seen.html = html;
  }
  return { rule, seen };
}

// What the page shows when no node has changed for `quiet_ms`, or nothing is due; null if neither within `cap_ms`.
const quiet = (quiet_ms, cap_ms, announces) => new Promise((done) => {
  let timer, poll;
  const end = (settled) => {
    watcher.disconnect();
    for (const each of [timer, cap]) clearTimeout(each);
    clearInterval(poll);
    done(settled && !closed ? look() : null);
  };
  const calm = () => (FULL && document.getAnimations().some(finite) ? again() : end(true));
  const again = () => { clearTimeout(timer); timer = setTimeout(calm, quiet_ms); };
  const watcher = new MutationObserver(again), cap = setTimeout(() => end(false), cap_ms);
  watcher.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  again();
  if (announces) poll = setInterval(() => { if (!due(quiet_ms)) end(true); }, 4);
});

// Starting the page again by `script`, in its own world: null, or if nothing is left of the time before but what the
// body had when it was loaded (keep) - no timer, no other part, nothing in its fields - what it then shows (turn), with
// numbers from 1 as in a new document.
let parts = [], fields = [];
function keep() {
  parts = Array.from(document.body.children);
  fields = Array.from(document.querySelectorAll("input,select,textarea"));
}
async function restart(script, quiet_ms, read) {
  document.activeElement?.blur();
  ask("mark");
  const ran = ask("run", script);
  await null; // what the script left to its promises
  return ran && renewed() ? turn(quiet_ms, true, read) : null;
}
function renewed() {
  const now = document.body.children, filled = (el) => ((v) => v[0] !== v[1])(values(el, role(el)));
  if (frames.length || ask("left") || now.length !== parts.length || parts.some((part, i) => part !== now[i])) return false;
  if (fields.some((field) => field.isConnected && filled(field))) return false;
  fresh();
  return true;
}

const look = () => (FULL ? person() : observe());
globalThis.agentq = { keep, restart, observe: look, turn, putBack, point, boxes, reach, act, origin, quiet, keyOf, focus, opened, several, holding, slid, beside, kind,
  fileOf, formOf, gesture, still, mark, scroll, scrolled, scrollTo: (x, y) => scrollTo({ left: x, top: y, behavior: "instant" }), seek };
