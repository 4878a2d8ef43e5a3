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
    const shown = [el, ...(el.labels ?? [])].flatMap((each) => ELSEWHERE.map(([right, down]) => place(each, right, down)));
    const found = shown.find((other) => other.inside);
    if (!found) return { over: spot.hit ? squeeze(`${spot.hit.localName} ${spot.hit.textContent}`) : "nothing" };
    spot = found;
  }
  return outer(view, spot.x, spot.y);
}
const PARTS = [0.5, 0.25, 0.75, 0.1, 0.9], ELSEWHERE = PARTS.flatMap((right) => PARTS.map((down) => [right, down]));
// A part of the way across an element, what is hit there, and whether that is the element, a part of it, or its label.
function place(el, right, down) {
  const box = Array.from(el.getClientRects()).find((r) => r.width && r.height) ?? el.getBoundingClientRect();
  const x = box.left + box.width * right, y = box.top + box.height * down, hit = deepest(el.ownerDocument, x, y);
  return { x, y, hit, inside: !!hit && [el, ...(el.labels ?? [])].some((each) => encloses(each, hit)) };
}
// What is hit, in whatever shadow root.
function deepest(root, x, y) {
  const hit = root.elementFromPoint(x, y);
  return hit?.shadowRoot && hit.shadowRoot !== root ? deepest(hit.shadowRoot, x, y) ?? hit : hit;
}
function encloses(el, node) {
  for (let at = node; at; at = at.assignedSlot ?? at.parentNode ?? at.host) if (at === el) return true;
  return false;
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
  value(el, value) { // of a field that keys cannot fill
    const before = el.value;
    el.focus();
    el.value = value;
    if (el.value !== value) { el.value = before; return false; }
    tell(el, "input", "change");
  },
  leave() { document.activeElement?.blur(); },
  show(el) { el.scrollIntoView({ block: "start", behavior: "instant" }); },
};
// false if the element is gone
const act = (verb, key, value) => { const el = find(key); return !!el && acts[verb](el, value) !== false; };

// How an element is typed into: by keys, by an editor, as a value, as the value of a range but for its last step, by the
// keys of a slider, as a cell of a table, which opens for it; "" if it is gone. It gets the focus, unless it is a cell.
const FIELD = "input:not([type=hidden]),textarea,[contenteditable]";
function focus(key) {
  const el = find(key);
  if (!el) return "";
  if (/^(grid)?cell$/.test(roleOf(el)) && !el.isContentEditable && !el.querySelector(FIELD)) return "cell";
  el.scrollIntoView({ block: "nearest", behavior: "instant" });
  const inner = /^(input|textarea)$/.test(el.localName) || el.isContentEditable ? el : el.querySelector(FIELD) ??
    (el.tabIndex >= 0 ? el : el.querySelector("[tabindex='0']") ?? el);
  inner.focus();
  if (inner.type === "range") return "range";
  if (FORMATS[inner.type] && !/^(email|url|tel|password)$/.test(inner.type)) return "value";
  return inner.isContentEditable ? "editor" : "value" in inner ? "keys" : roleOf(el) === "slider" ? "slider" : "editor";
}
// Whether a field over a cell has the focus, once the page has drawn it.
const opened = async (key) => {
  await new Promise((done) => setTimeout(done, 50));
  const el = find(key), field = active(document);
  if (!el || !field?.matches(FIELD)) return false;
  const [a, b] = [el, field].map((each) => each.getBoundingClientRect());
  return b.width > 1 && b.height > 1 && b.left < a.right && b.right > a.left && b.top < a.bottom && b.bottom > a.top;
};
// What a field holds after typing; of an editor that keeps its text elsewhere, what is shown around it.
function holding(key, typed) {
  const el = find(key), now = active(document);
  if (!el) return null;
  const field = encloses(el, now) ? now : el, own = squeeze(field.value ?? field.innerText ?? "");
  if (own === squeeze(typed)) return own;
  const box = field.closest(EDITORS);
  return box ? written(box) : own;
}
const active = (root) => (root.activeElement?.shadowRoot ? active(root.activeElement.shadowRoot) : root.activeElement);
// What a slider without a field shows, once the page has drawn it: [now, least, most].
const slid = async (key) => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return ["now", "min", "max"].map((end) => Number(find(key)?.getAttribute(`aria-value${end}`) ?? NaN));
};
// Brings a range to the step beside `value`. The key that leads from there to `value`: a page may keep a value only then.
function beside(key, value) {
  const el = find(key), back = getComputedStyle(el).direction === "rtl";
  el.value = value;
  const wanted = el.value;
  el.stepDown();
  const up = el.value !== wanted;
  if (!up) el.stepUp();
  tell(el, "input");
  return up === back ? "ArrowLeft" : "ArrowRight";
}
const kind = (key) => { const el = find(key); return el?.type ?? (el && el.localName); };
const fileOf = (key) => { const el = find(key); return el?.control ?? (el?.type === "file" ? el : null); };
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
  let box = deepest(document, innerWidth / 2, innerHeight / 2);
  while (box && !(scrolls(box) && room(box))) box = box.parentElement ?? box.getRootNode().host;
  const page = document.scrollingElement ?? document.documentElement;
  const large = () => Array.from(document.querySelectorAll("*")).filter((el) => scrolls(el) && room(el) && visible(el))
    .sort((a, b) => b.clientHeight * b.clientWidth - a.clientHeight * a.clientWidth)[0];
  const chosen = box ?? (room(page) ? page : large());
  chosen?.scrollBy({ top: down * 0.8 * chosen.clientHeight, behavior: "instant" });
  return !!chosen;
}
const scrolled = () => [Math.round(scrollX), Math.round(scrollY)];

// Bring the next place with a text into view: [its number, how many there are].
let sought = { text: "", number: 0 };
function seek(text) {
  const wanted = squeeze(text).toLowerCase(), hits = [];
  const has = (node) => squeeze([node.value, node.textContent, node.ariaLabel, node.placeholder].filter((each) => typeof each === "string").join(" ")).toLowerCase().includes(wanted);
  const walk = (el) => {
    if (SKIPPED.has(el.localName) || (el.nodeType === 1 && hidden(el))) return false;
    let inner = false;
    for (const kid of children(el)) if (kid.nodeType === 1 && walk(kid)) inner = true;
    if (!inner && has(el) && el.checkVisibility?.()) hits.push(el);
    return inner || hits.at(-1) === el;
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

// Where elements are in the window: [left, top, width, height] by number, for those in sight; and the window's size.
function boxes(keys) {
  const found = {}, size = [innerWidth, innerHeight];
  for (const [number, key] of Object.entries(keys)) {
    const el = find(key), box = el?.isConnected && el.getBoundingClientRect();
    if (!box || !box.width || !box.height) continue;
    const { x, y } = outer(el.ownerDocument.defaultView, box.left, box.top);
    if (x < size[0] && y < size[1] && x + box.width > 0 && y + box.height > 0)
      found[number] = [x, y, box.width, box.height].map(Math.round);
  }
  return { size, boxes: found };
}

// A picture of the window with a box around each element and its number at the upper left corner, as a WebP in base64.
async function mark(picture, boxes, quality) {
  const bytes = Uint8Array.from(atob(picture), (character) => character.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes])), canvas = new OffscreenCanvas(image.width, image.height);
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  Object.assign(pen, { font: "bold 12px sans-serif", textBaseline: "top", lineWidth: 2 });
  for (const [number, [x, y, width, height]] of Object.entries(boxes)) {
    const [left, top] = [Math.max(0, x), Math.max(0, y)], wide = pen.measureText(number).width + 4;
    pen.strokeStyle = pen.fillStyle = `hsl(${(number * 137) % 360} 90% 32%)`;
    pen.strokeRect(x, y, width, height);
    pen.fillRect(left, top, wide, 14);
    pen.fillStyle = "white";
    pen.fillText(number, left + 2, top + 1);
  }
  const drawn = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality })).arrayBuffer());
  return btoa(Array.from(drawn, (byte) => String.fromCharCode(byte)).join(""));
}

const look = () => (FULL ? person() : observe());
globalThis.agentq = { keep, restart, observe: look, turn, putBack, point, boxes, corner, act, origin, quiet, keyOf, focus, opened, holding, slid, beside, kind,
  fileOf, formOf, still, mark, scroll, scrolled, scrollTo: (x, y) => scrollTo({ left: x, top: y, behavior: "instant" }), seek };
