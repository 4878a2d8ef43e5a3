// The acts that need a document's DOM, and when it has settled. See page.js.
// Whether anything here may change the page by itself: a script, a frame, a handler in an attribute, a listener.
const moving = "boolean(//@*[starts-with(name(), 'on') or name() = 'agentq-clicks' or starts-with(., 'javascript:')])";
const scripted = () =>
  document.scripts.length + frames.length > 0 || document.evaluate(moving, document, null, 3, null).booleanValue;

// Where to press the mouse, in CSS pixels of this document's viewport: the element's middle, or where it is not covered;
// if it must be free and is nowhere, what lies over it.
function point(key, free) {
  const el = find(key);
  if (!el) return null;
  const view = el.ownerDocument.defaultView;
  let spot = place(el, 0.5, 0.5);
  if (!spot.inside || view !== window) { // out of the window, or clipped by a box that scrolls
    el.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    spot = place(el, 0.5, 0.5);
  }
  if (free && !spot.inside && !spot.hit?.contains(el)) {
    const found = ELSEWHERE.map(([right, down]) => place(el, right, down)).find((other) => other.inside);
    if (!found) return { over: spot.hit ? squeeze(`${spot.hit.localName} ${spot.hit.textContent}`) : "nothing" };
    spot = found;
  }
  return outer(view, spot.x, spot.y);
}
const PARTS = [0.5, 0.25, 0.75, 0.1, 0.9], ELSEWHERE = PARTS.flatMap((right) => PARTS.map((down) => [right, down]));
// A part of the way across an element, what is hit there, and whether that is the element, a part of it, or its label.
function place(el, right, down) {
  const box = Array.from(el.getClientRects()).find((r) => r.width && r.height) ?? el.getBoundingClientRect();
  const x = box.left + box.width * right, y = box.top + box.height * down, hit = el.getRootNode().elementFromPoint(x, y);
  return { x, y, hit, inside: !!hit && (el.contains(hit) || Array.from(el.labels ?? []).some((l) => l.contains(hit))) };
}
// A point of a same-origin frame's viewport in this document's.
function outer(view, x, y) {
  for (let w = view; w !== window; w = w.parent) ({ x, y } = inset(w.frameElement, x, y));
  return { x, y };
}
function inset(frame, x, y) {
  const box = frame.getBoundingClientRect();
  return { x: x + box.left + frame.clientLeft, y: y + box.top + frame.clientTop };
}
// The top left corner of a frame's content, once it is in view.
function corner(key) {
  const frame = find(key), { x, y } = (frame.scrollIntoView({ block: "nearest", behavior: "instant" }), inset(frame, 0, 0));
  return outer(frame.ownerDocument.defaultView, x, y);
}

const tell = (el, ...types) => types.forEach((t) => el.dispatchEvent(new Event(t, { bubbles: true, composed: true })));
const acts = {
  put(el, value) {
    el.focus();
    if (el.isContentEditable) el.textContent = value;
    else el.value = value; // the native setter: this world does not see a framework's
    tell(el, "input", "change");
  },
  choose(el, index) {
    if (el.multiple) el.options[index].selected = !el.options[index].selected;
    else el.selectedIndex = index;
    tell(el, "input", "change");
  },
  submit(el) {
    const form = el.form ?? el.closest("form");
    const submits = /^(submit|image)$/.test(el.type) && /^(button|input)$/.test(el.localName);
    form.requestSubmit(submits ? el : Array.from(form.elements).find((b) => /^(submit|image)$/.test(b.type) && !b.disabled));
  },
  check(el, on) { if (el.checked !== on) el.click(); },
  show(el) { el.scrollIntoView({ block: "start", behavior: "instant" }); },
};
// false if the element is gone
const act = (verb, key, value) => { const el = find(key); if (el) acts[verb](el, value); return !!el; };

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
// a document without scripts came with, unless it is the one `read` last.
async function turn(quiet_ms, announces, read) {
  await new Promise(setTimeout);
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
  const end = (calm) => {
    watcher.disconnect();
    for (const each of [timer, cap]) clearTimeout(each);
    clearInterval(poll);
    done(calm ? look() : null);
  };
  const again = () => { clearTimeout(timer); timer = setTimeout(() => end(true), quiet_ms); };
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
globalThis.agentq = { keep, restart, observe: look, turn, putBack, point, corner, act, origin, quiet, keyOf };
