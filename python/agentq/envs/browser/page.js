// One document as the agent reads it, and the acts that need its DOM. Runs in an isolated world of every document, so
// that a page's own scripts can neither call nor change it. On the HTML of the built-in sites it must find the same
// lines as envs/page.py; everywhere else it finds more (roles, visibility, frames, shadow roots, click listeners).
(() => {
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
  const find = (key) => { const el = elements.get(key)?.deref(); return el?.isConnected ? el : null; };

  const squeeze = (text) => (text ?? "").replace(/[\s\x00-\x1f\x7f-\x9f]+/g, " ").trim();
  const line = (text) => text.replace(/[\r\n\t]+/g, " ");
  const visible = (el) => getComputedStyle(el).visibility === "visible";
  const hidden = (el) =>
    el.hidden || el.getAttribute("aria-hidden") === "true" || getComputedStyle(el).display === "none";
  const textOf = (node) => {
    if (node.nodeType === 3) return node.data;
    if (node.nodeType !== 1 || SKIPPED.has(node.localName) || /^(select|textarea)$/.test(node.localName)) return "";
    if (node.localName === "img") return ` ${node.alt} `;
    const kids = Array.from((node.shadowRoot ?? node).childNodes, textOf).join("");
    return INLINE.has(getComputedStyle(node).display) ? kids : ` ${kids} `;
  };

  function role(el) {
    const given = el.getAttribute("role");
    if (ARIA.has(given)) return given === "searchbox" || given === "spinbutton" ? "textbox" : given;
    if (el.localName === "input") return INPUT[el.type] ?? "textbox";
    if (NATIVE[el.localName]) return NATIVE[el.localName];
    if (el.isContentEditable && !el.parentElement?.isContentEditable) return "textbox";
    return clickable(el) ? "clickable" : "";
  }
  // Listeners are marked by listeners.js; a pointer cursor counts where it begins, a list listens for its items.
  function clickable(el) {
    if (el === el.ownerDocument.body || el.querySelector(INNER)) return false;
    if (el.matches(LISTENING) && el.querySelector("li")) return false;
    if (el.hasAttribute("agentq-clicks") || el.hasAttribute("onclick")) return true;
    if (el.localName === "li" && el.closest(LISTENING) && !el.querySelector("li")) return true;
    const over = el.parentElement;
    if (over?.hasAttribute("agentq-clicks") && over !== el.ownerDocument.body && !over.matches(LISTENING) && spoken(over) === el)
      return true;
    return !!over && getComputedStyle(el).cursor === "pointer" && getComputedStyle(over).cursor !== "pointer";
  }
  // The labels of a control, gathered once a look: `el.labels` walks the whole document for each.
  let labelled = new Map();
  function labelsOf(el) {
    const root = el.getRootNode();
    if (!labelled.has(root)) {
      const found = new Map();
      for (const label of root.querySelectorAll("label"))
        found.set(label.control, [...(found.get(label.control) ?? []), label]);
      labelled.set(root, found);
    }
    return labelled.get(root).get(el) ?? [];
  }
  // What stands for a listening element that holds controls of its own: its first part that has words and no control.
  const spoken = (over) => Array.from(over.children).find((el) => !el.querySelector(INNER) && !el.matches(INNER) && squeeze(textOf(el)));
  function name(el, is) {
    const ids = (el.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean);
    const named = ids.map((id) => textOf(el.getRootNode().getElementById?.(id) ?? el.ownerDocument.createTextNode("")));
    const labels = labelsOf(el).map(textOf);
    const field = /^(input|select|textarea)$/.test(el.localName) || el.isContentEditable;
    const own = !field ? textOf(el) : el.localName === "input" && is === "button" ? el.value || el.alt : "";
    return squeeze(el.getAttribute("aria-label")) || squeeze(named.join(" ")) || squeeze(labels.join(" ")) ||
      squeeze(own) || squeeze(el.title) || squeeze(el.placeholder) || squeeze(el.querySelector?.("svg title")?.textContent) ||
      (is === "clickable" || is === "button" ? looks(el) : "");
  }
  // What tells an element without words from its neighbours: its shape and colour, else what its author calls it.
  function looks(el) {
    if (el.localName === "svg") return squeeze(`svg ${Array.from(el.querySelectorAll(SHAPES), looks).join(" , ")}`);
    if (el.namespaceURI.endsWith("svg")) return squeeze(`${el.localName} ${el.getAttribute("fill") ?? ""}`);
    return squeeze(`${el.style.backgroundColor} ${el.id} ${el.className}`);
  }
  const labelOf = (option) => squeeze(option.label || option.textContent);
  // [as the page came, now]
  function values(el, is) {
    if (/^(checkbox|radio)$/.test(el.type)) return [el.defaultChecked, el.checked].map((on) => (on ? "checked" : ""));
    if (el.localName === "select") {
      const chosen = (test) => Array.from(el.options).filter(test).map(labelOf);
      const came = chosen((o) => o.defaultSelected);
      const first = el.multiple || el.size > 1 || !el.options.length ? "" : labelOf(el.options[0]);
      return [el.multiple ? came.join(" , ") : came.at(-1) ?? first, chosen((o) => o.selected).join(" , ")];
    }
    if (/^(input|textarea)$/.test(el.localName)) return is === "button" ? ["", ""] : [line(el.defaultValue), line(el.value)];
    if (is === "textbox") return ["", squeeze(el.textContent)];
    for (const state of ["checked", "selected", "pressed", "expanded"])
      if (el.getAttribute(`aria-${state}`) === "true") return ["", state];
    return ["", ""];
  }
  function control(el, is, forms) {
    const form = el.form ?? el.closest("form"), submits = /^(submit|image)$/.test(el.type) && is === "button";
    const [value, live] = values(el, is);
    if (form && !forms.includes(form)) forms.push(form);
    return {
      key: keyOf(el), role: is, name: name(el, is), value, live, submits,
      form: form ? forms.indexOf(form) : null, field: el.getAttribute("name") ?? "", href: el.getAttribute("href") ?? "",
      options: el.localName === "select" ? Array.from(el.options, (o) => [labelOf(o), o.value]) : [],
      disabled: el.matches(":disabled") || el.getAttribute("aria-disabled") === "true",
    };
  }

  // Lines in document order: a text, {control} or {frame}, the place of a document of another origin.
  function observe() {
    const lines = [], forms = [];
    labelled = new Map();
    let words = [], cut = 0;
    const push = (line) => { if (lines.length < MAX_LINES) lines.push(line); else cut++; };
    const flush = () => { const text = squeeze(words.join(" ")); words = []; if (text) push(`text ${text}`); };
    function children(node, mute) {
      for (const child of node.assignedNodes?.() ?? []) visit(child, mute);
      if (node.localName !== "slot" || !node.assignedNodes().length)
        for (const child of (node.shadowRoot ?? node).childNodes) visit(child, mute);
    }
    function visit(node, mute) {
      if (node.nodeType === 3 && !mute && node.parentElement !== null && visible(node.parentElement)) words.push(node.data);
      if (node.nodeType === 3 && node.parentElement === null && !mute) words.push(node.data); // in a shadow root
      if (lines.length >= MAX_LINES) { cut++; return; }
      if (node.nodeType !== 1 || SKIPPED.has(node.localName) || hidden(node)) return;
      const tag = node.localName, is = visible(node) && node.type !== "hidden" ? role(node) : "";
      if (tag === "input" && !is) return;
      if (is) { flush(); return push({ control: control(node, is, forms) }); }
      if (tag === "iframe" || tag === "frame") return frame(node);
      if (tag === "label") return children(node, mute || node.control !== null);
      if (LIVE.has(node.getAttribute("role")) || /^h[1-6]$/.test(tag)) {
        if (!node.querySelector("a,button,input,select,textarea,[onclick],[agentq-clicks]")) {
          flush();
          if (!squeeze(textOf(node))) return;
          return push(`${LIVE.has(node.getAttribute("role")) ? node.getAttribute("role") : "heading"} ${squeeze(textOf(node))}`);
        }
      }
      if (tag === "img" && node.alt && !mute) words.push(node.alt);
      const block = tag === "br" || !INLINE.has(getComputedStyle(node).display);
      if (block) flush();
      children(node, mute);
      if (block) flush();
    }
    function frame(node) {
      flush();
      let body = null;
      try { body = /^(data|blob):/.test(node.src) ? null : node.contentDocument?.body; } catch { /* another origin */ }
      if (body) { visit(body, false); flush(); } else push({ frame: keyOf(node) });
    }
    if (document.body) visit(document.body, false);
    flush();
    return { world, lines, cut, url: location.href };
  }

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
    const seen = rule && observe();
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
      done(calm ? observe() : null);
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

  globalThis.agentq = { keep, restart, observe, turn, putBack, point, boxes, corner, act, origin, quiet, keyOf };
})();
