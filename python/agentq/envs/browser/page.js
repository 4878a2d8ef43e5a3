// One document as the agent reads it. Runs with person.js and acts.js as one function (tab.py) in an isolated world of
// every document, so that a page's own scripts can neither call nor change it. On the HTML of the built-in sites it must
// find the same lines as envs/page.py; elsewhere it finds more (roles, visibility, frames, shadow roots, click listeners).
const MAX_LINES = 5000;
const SKIPPED = new Set(["script", "style", "template", "head", "title", "noscript", "object", "embed"]);
const INLINE = new Set(["inline", "inline-block", "inline-flex", "inline-grid", "contents", "ruby"]);
const LIVE = new Set(["alert", "status"]);
const NATIVE = { a: "link", button: "button", select: "combobox", textarea: "textbox", summary: "button" };
const INPUT = {
  checkbox: "checkbox", radio: "radio", range: "slider",
  submit: "button", button: "button", reset: "button", image: "button",
};
const ARIA = new Set(
  ("button link checkbox radio switch tab menuitem menuitemcheckbox menuitemradio option treeitem " +
    "textbox searchbox combobox slider spinbutton").split(" "));
const INNER = ["a,button,input,select,textarea,[agentq-clicks]", ...Array.from(ARIA, (role) => `[role=${role}]`)].join();
const HANDLED = /^(pointer|grab|.*-resize)$/; // the cursor says that it can be pressed or dragged
const SHAPES = "circle,ellipse,rect,polygon,line,path";
const LISTENING = "ul[agentq-clicks],ol[agentq-clicks]";

// Keys: a number for every control and frame ever shown, kept while the element lives.
let keys, elements, lastKey, world, html;
function fresh() {
  [keys, elements, lastKey, html] = [new WeakMap(), new Map(), 0, null];
  world = `${Math.random()}${performance.now()}${performance.timeOrigin}`;
}
fresh();
const keyOf = (el) => {
  if (!keys.has(el)) { keys.set(el, ++lastKey); elements.set(lastKey, new WeakRef(el)); }
  return keys.get(el);
};
const find = (key) => { const el = elements.get(key)?.deref(); return bare(el)?.isConnected ? el : null; };

// A form as its class defines it, to read from: the names of its fields hide what a form itself has. Others as they are.
const bare = (el) => (el?.noValidate === undefined ? el : new Proxy({}, { get: (_, name) => own(el, name) }));
function own(form, name) {
  const value = Reflect.get(HTMLFormElement.prototype, name, form);
  return typeof value === "function" ? value.bind(form) : value;
}
const squeeze = (text) => (text ?? "").replace(/[\s\x00-\x1f\x7f-\x9f]+/g, " ").trim();
const line = (text) => text.replace(/[\r\n\t]+/g, " ");
const visible = (el) => getComputedStyle(el).visibility === "visible";
function hidden(el) {
  const it = bare(el);
  return it.hidden || it.getAttribute("aria-hidden") === "true" || getComputedStyle(el).display === "none";
}
// Whether a control takes nothing: it is disabled, or lies in an inert part of its page or of the page around a frame.
function off(el) {
  if (bare(el).matches(":disabled") || bare(el).getAttribute("aria-disabled") === "true") return true;
  for (let at = el; at;) {
    if (bare(at).closest("[inert]")) return true;
    const root = bare(at).getRootNode();
    at = root.host ?? root.defaultView?.frameElement;
  }
  return false;
}
const textOf = (node) => {
  if (node.nodeType === 3) return node.data;
  const { nodeType, localName, shadowRoot, childNodes } = bare(node);
  if (nodeType !== 1 || SKIPPED.has(localName) || /^(select|textarea)$/.test(localName)) return "";
  if (localName === "img") return ` ${node.alt} `;
  const kids = Array.from(shadowRoot?.childNodes ?? childNodes, textOf).join("");
  return INLINE.has(getComputedStyle(node).display) ? kids : ` ${kids} `;
};

function role(el) {
  const given = bare(el).getAttribute("role");
  if (ARIA.has(given)) return given === "searchbox" || given === "spinbutton" ? "textbox" : given;
  if (el.localName === "input") return INPUT[el.type] ?? "textbox";
  if (NATIVE[el.localName]) return NATIVE[el.localName];
  if (editable(el)) return "textbox";
  return clickable(el) ? "clickable" : "";
}
// Listeners are marked by listeners.js; a cursor that says so counts where it begins, a list listens for its items.
function clickable(el) {
  const it = bare(el), { body } = it.ownerDocument, over = it.parentElement, around = bare(over);
  if (el === body || it.querySelector(INNER)) return false;
  if (it.matches(LISTENING) && it.querySelector("li")) return false;
  if (it.hasAttribute("agentq-clicks") || it.hasAttribute("onclick")) return true;
  if (it.localName === "li" && it.closest(LISTENING) && !it.querySelector("li")) return true;
  if (around?.hasAttribute("agentq-clicks") && over !== body && !around.matches(LISTENING) && spoken(around) === el)
    return true;
  const own = getComputedStyle(el).cursor;
  return !!over && HANDLED.test(own) && getComputedStyle(over).cursor !== own;
}
// The labels of a control, gathered once a look: `el.labels` walks the whole document for each.
let labelled = new Map();
function labelsOf(el) {
  const root = bare(el).getRootNode();
  if (!labelled.has(root)) {
    const found = new Map();
    for (const label of root.querySelectorAll("label"))
      found.set(label.control, [...(found.get(label.control) ?? []), label]);
    labelled.set(root, found);
  }
  return labelled.get(root).get(el) ?? [];
}
// What stands for a listening element that holds controls of its own: its first part that has words and no control.
const spoken = (over) => Array.from(over.children)
  .find((el) => !bare(el).querySelector(INNER) && !bare(el).matches(INNER) && squeeze(textOf(el)));
function name(el, is) {
  const it = bare(el), ids = (it.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean);
  const named = ids.map((id) => textOf(it.getRootNode().getElementById?.(id) ?? it.ownerDocument.createTextNode("")));
  const labels = labelsOf(el).map(textOf);
  const field = /^(input|select|textarea)$/.test(it.localName) || it.isContentEditable;
  const said = !field ? textOf(el) : it.localName === "input" && is === "button" ? el.value || el.alt : "";
  return squeeze(it.getAttribute("aria-label")) || squeeze(named.join(" ")) || squeeze(labels.join(" ")) ||
    (/^(svg|text)$/.test(it.localName) ? looks(el) : squeeze(said)) || squeeze(it.title) || squeeze(it.placeholder) || squeeze(it.querySelector?.("svg title")?.textContent) ||
    (is === "clickable" || is === "button" ? looks(el) : "");
}
// What tells an element without words from its neighbours: its shape and colour, else what its author calls it.
function looks(el) {
  const shapes = () => Array.from(el.querySelectorAll(`${SHAPES},text`), drawn).join(" , ");
  if (el.localName === "svg") return squeeze(`${drawn(el)} ${FULL ? "" : ","} ${shapes()}`);
  if (bare(el).namespaceURI?.endsWith("svg")) return drawn(el);
  return squeeze(`${bare(el).style?.backgroundColor ?? ""} ${bare(el).id} ${bare(el).className}`);
}
// A shape of a drawing: its colour, size and middle in the window, as CLICK_AT and DRAG BY count.
function drawn(el) {
  if (FULL) return squeeze(`${el.localName} ${el.getAttribute("fill") ?? ""}`);
  const { left, top, width, height } = el.getBoundingClientRect(), [w, h, x, y] = [width, height, left + width / 2, top + height / 2].map(Math.round);
  const said = el.localName === "text" ? textOf(el) : el.localName;
  return squeeze(`${said} ${el.getAttribute("fill") ?? ""} ${w}x${h} at ${x},${y}`);
}
// What the options of a select are called. A label that several of them have follows that of its group.
function calledIn(select) {
  const options = Array.from(select.options), own = options.map((o) => squeeze(o.label || o.textContent)), times = new Map();
  for (const label of own) times.set(label, (times.get(label) ?? 0) + 1);
  return own.map((label, i) => (times.get(label) > 1 ? squeeze(`${options[i].closest("optgroup")?.label ?? ""} ${label}`) : label));
}
const editable = (el) => bare(el).isContentEditable && !bare(bare(el).parentElement)?.isContentEditable;
// [as the page came, now]
function values(field, is) {
  const el = bare(field);
  if (/^(checkbox|radio)$/.test(el.type)) return [el.defaultChecked, el.checked].map((on) => (on ? "checked" : ""));
  if (el.localName === "select") {
    const called = calledIn(el), chosen = (test) => called.filter((_, i) => test(el.options[i]));
    const came = chosen((o) => o.defaultSelected);
    const first = el.multiple || el.size > 1 || !called.length ? "" : called[0];
    return [el.multiple ? came.join(" , ") : came.at(-1) ?? first, chosen((o) => o.selected).join(" , ")];
  }
  if (/^(input|textarea)$/.test(el.localName)) return is === "button" ? ["", ""] : [line(el.defaultValue), line(el.value)];
  if (is === "textbox") return ["", squeeze(el.textContent)];
  for (const state of ["checked", "selected", "pressed", "expanded"])
    if (el.getAttribute(`aria-${state}`) === "true") return ["", state];
  return ["", ""];
}
function control(el, is, forms) {
  const it = bare(el), form = it.form ?? it.closest("form"), submits = /^(submit|image)$/.test(it.type) && is === "button";
  const [value, live] = values(el, is);
  if (form && !forms.includes(form)) forms.push(form);
  return {
    key: keyOf(el), role: is, name: name(el, is), value, live, submits,
    form: form ? forms.indexOf(form) : null, field: it.getAttribute("name") ?? "", href: it.getAttribute("href") ?? "",
    options: it.localName === "select" ? calledIn(el).map((label, i) => [label, el.options[i].value]) : [],
    disabled: off(el),
  };
}

// The body of a framed document that is read as a part of this one, whatever the frame was told to show first.
function bodyIn(frame) {
  try {
    const page = frame.contentDocument;
    return [frame.src, page?.URL].some((url) => /^(data|blob):/.test(url)) ? null : page?.body;
  } catch { return null; } // of another origin
}

// Lines in document order: a text, {control} or {frame}, the place of a document of another origin.
function observe() {
  const lines = [], forms = [];
  labelled = new Map();
  let words = [];
  const push = (line) => { if (lines.length < MAX_LINES) lines.push(line); };
  const flush = () => { const text = squeeze(words.join(" ")); words = []; if (text) push(`text ${text}`); };
  function children(node, mute) {
    const { localName, shadowRoot, childNodes } = bare(node), given = (localName === "slot" && node.assignedNodes?.()) || [];
    for (const child of given) visit(child, mute);
    if (!given.length) for (const child of shadowRoot?.childNodes ?? childNodes) visit(child, mute);
  }
  function visit(node, mute) {
    if (node.nodeType === 3 && !mute && node.parentElement !== null && visible(node.parentElement)) words.push(node.data);
    if (node.nodeType === 3 && node.parentElement === null && !mute) words.push(node.data); // in a shadow root
    if (lines.length >= MAX_LINES) return;
    const it = bare(node);
    if (it.nodeType !== 1) return;
    const tag = it.localName;
    if (SKIPPED.has(tag) || hidden(node)) return;
    const is = visible(node) && it.type !== "hidden" ? role(node) : "";
    if (tag === "input" && !is) return;
    if (is) { flush(); return push({ control: control(node, is, forms) }); }
    if (tag === "iframe" || tag === "frame") return frame(node);
    if (tag === "label") return children(node, mute || node.control !== null);
    const live = LIVE.has(it.getAttribute("role"));
    if (live || /^h[1-6]$/.test(tag)) {
      if (!it.querySelector("a,button,input,select,textarea,[onclick],[agentq-clicks]")) {
        flush();
        if (!squeeze(textOf(node))) return;
        return push(`${live ? it.getAttribute("role") : "heading"} ${squeeze(textOf(node))}`);
      }
    }
    if (tag === "img" && node.alt && !mute) words.push(node.alt);
    if (it.ownerSVGElement?.querySelector("[agentq-clicks]") && it.matches(SHAPES)) words.push(drawn(node));
    const block = tag === "br" || !INLINE.has(getComputedStyle(node).display);
    if (block) flush();
    children(node, mute);
    if (block) flush();
  }
  function frame(node) {
    flush();
    const body = bodyIn(node);
    if (body) { visit(body, false); flush(); } else push({ frame: keyOf(node) });
  }
  if (document.body) visit(document.body, false);
  flush();
  return { world, lines, url: location.href };
}
