// One document as a person sees it: lines with their depth, and where they lie. Items of the page are gathered first, then
// laid out in lines. An item is a text, a break between blocks, a control, a frame, or a place that holds items. See page.js.
const MANY = 200; // children of one element, beyond which those far from the window are only counted
const SHOWN_OPTIONS = 30;
const EDGE = 10; // pixels: what is narrower and empty in a row is a handle that widens a column
const MAX_ROW = 400; // characters of a table row on one line
const BREAK = { breaks: true };

let placed; // the forms
let opening; // what opens on hover (heard.js)
let broken; // elements that could not be read
function gather(node, mute, into) {
  if (node.nodeType === 3) {
    const parent = node.parentElement ?? node.getRootNode().host;
    if (!mute && parent && visible(parent) && squeeze(node.data)) into.push({ text: node.data, el: parent });
    else if (!mute && node.data) into.push({ text: " ", el: parent });
    return;
  }
  const it = bare(node);
  if (it.nodeType !== 1 || SKIPPED.has(tagOf(node)) || unseen(node) || it.type === "hidden") return;
  if (it.matches(EDITORS)) return void into.push(BREAK, editor(node), BREAK);
  const tag = tagOf(node), style = getComputedStyle(node), role = roleOf(node);
  if (/^(dialog|alertdialog|menu)$/.test(role) && outside(node)) return;
  if (/^(legend|caption)$/.test(tag) && node === bare(node.parentElement)?.querySelector(`:scope > ${tag}`)) return; // a name
  if (tag === "iframe" || tag === "frame") return void into.push(frame(node));
  if (tag === "canvas" || tag === "video" || tag === "audio") into.push({ text: ` ${tag} ${nameOf(node, "img")} (not read) `, el: node });
  if (role === "img" || (tag === "img" && /^(none|presentation)$/.test(role))) return picture(node, role, mute, into);
  if (role === "progressbar" || role === "meter") {
    const value = it.getAttribute("aria-valuetext") ?? it.getAttribute("aria-valuenow") ?? (it.hasAttribute("value") ? `${node.value} of ${node.max}` : "");
    return void into.push(BREAK, { text: `${role} ${nameOf(node, role)} ${value}`, el: node }, BREAK);
  }
  const block = tag === "br" || !INLINE.has(style.display);
  if (block) into.push(BREAK);
  if (style.visibility === "visible" && (CONTROLS.has(role) || (role === "listbox" && tag === "select"))) into.push(numbered(node, role, mute));
  else if (tag === "label") label(node, mute, into);
  else into.push(...part(node, role, mute));
  if (block) into.push(BREAK);
}
// What is not drawn: hidden elements, and what a drawing only refers to. An area is drawn as its image is.
const UNDRAWN = /^(defs|symbol|clipPath|mask|pattern|marker)$/;
const unseen = (el) => (tagOf(el) === "area" ? !imageOf(el) : hidden(el) || (drawing(el) && UNDRAWN.test(el.localName)));
// A picture is a control if it listens. What can be pressed in a drawing has its own line, and the rest only a name.
const PRESSED = "a,[role],[tabindex],[onclick],[agentq-clicks],foreignObject";
function picture(node, role, mute, into) {
  if (!visible(node)) return;
  const items = bare(node).querySelector(PRESSED) ? within(node, true).filter((item) => holds([item])) : [];
  const name = nameOf(node, role);
  if (listening(node) && sized(node)) return void into.push({ control: described(node, "clickable", node), el: node, items });
  const hows = tagOf(node) === "img" && !mute && small(node) ? hearing(node).filter((how) => how !== "right click") : [];
  if (hows.length) return void into.push({ control: otherwise(described(node, "clickable", node), node, hows), el: node, items });
  if (!mute && role === "img" && name) into.push({ text: ` ${name} `, el: node });
  into.push(...items);
}
// Whether an element lies beyond the top or the left edge of its page, where no scrolling leads: it waits there to be shown.
function outside(el) {
  const box = bare(el).getBoundingClientRect(), view = bare(el).ownerDocument.defaultView;
  return !!box.width && !!box.height && (box.bottom + view.scrollY <= 0 || box.right + view.scrollX <= 0);
}
const within = (node, mute) => {
  const items = [];
  const closed = tagOf(node) === "details" && !node.open;
  for (const kid of near(node)) {
    if (!bare(kid).nodeType) items.push(kid);
    else if (!closed || tagOf(kid) === "summary") {
      try {
        if (broken.has(kid)) items.push(BREAK, ...within(kid, mute), BREAK);
        else gather(kid, mute, items);
      } catch (error) { spared(kid, mute, items, error); }
    }
  }
  return items;
};
// An element that cannot be read costs itself, and not the page: what it holds is read, unless that lies too deep.
function spared(node, mute, into, error) {
  let items = [{ text: "(not read)", el: document.body }];
  if (!broken.has(node) && !(error instanceof RangeError)) {
    broken.add(node);
    try { items = within(node, mute); } catch { /* nor can what it holds */ }
  }
  into.push(BREAK, ...items, BREAK);
}
// The children to read. Of many, those within a window's height of the window and the first; the others are counted.
function near(node) {
  const kids = Array.from(children(node));
  if (kids.length <= MANY) return kids;
  const view = bare(node).ownerDocument.defaultView, found = [];
  let left = 0;
  const tell = () => { if (left) found.push(BREAK, { text: `(${left} more here: SCROLL or FIND)`, el: node }, BREAK); left = 0; };
  kids.forEach((kid, i) => {
    const box = bare(kid).nodeType === 1 && bare(kid).getBoundingClientRect();
    if (!box) { if (kid.nodeType === 3 && squeeze(kid.data)) found.push(kid); return; }
    if (i > 1 && box.height && (box.bottom < -view.innerHeight || box.top > 2 * view.innerHeight)) left++;
    else { tell(); found.push(kid); }
  });
  tell();
  return found;
}
const holds = (items) => items.some((item) => item.control || item.frame || (item.items && holds(item.items)));
const texts = (items) => items.flatMap((item) => (item.items ? texts(item.items) : item.text && squeeze(item.text) ? [item] : []));

function numbered(el, role, mute) {
  const control = described(el, role, el), leaf = role === "listbox" || /^(input|textarea)$/.test(tagOf(el)) || el.isContentEditable;
  const items = leaf ? [] : within(el, true).filter((item) => item.control?.role !== "clickable");
  return { control, el, items: holds(items) ? items : [] };
}
// An editor that keeps its text outside a field is one text box: what it shows, and the field that takes its keys. It is
// called what the field is called that it stands for, which is hidden beside it.
const EDITORS = ".CodeMirror,.cm-editor,.monaco-editor,.ace_editor";
const written = (box) => squeeze(Array.from(box.querySelectorAll(".CodeMirror-line,.cm-line,.view-line,.ace_line"), (each) => each.textContent)
  .join(" ").replace(/[\u200b\ufeff]/g, ""));
function editor(box) {
  const keys = box.querySelector("textarea,[contenteditable=true]") ?? box, beside = box.previousElementSibling;
  const stood = tagOf(beside ?? box) === "textarea" ? beside : keys, control = described(keys, "textbox", keys);
  const said = control.said.filter((each) => !each.startsWith("field ")).concat(nameOf(stood, "textbox") || !stood.name ? [] : [squeeze(`field ${stood.name}`)]);
  return { control: { ...control, name: control.name || nameOf(stood, "textbox"), live: written(box), value: "", said }, el: box, items: [] };
}
// A label says what its control is called. If that is out of sight, the label is what a person uses.
function label(node, mute, into) {
  const target = node.control, seen = target && !hidden(target) && target.checkVisibility() && visible(target);
  if (target && !seen && /^(checkbox|radio|file)$/.test(target.type)) {
    into.push({ control: described(node, native(target), target), el: node, items: [] });
  } else into.push(...within(node, mute || !!seen));
}
// An element that is no control by its role: numbered if it listens, else a place or its parts.
function part(node, role, mute) {
  let items = within(node, mute), listens = node !== bare(node).ownerDocument.body && !/dialog$/.test(role) && visible(node) && listening(node);
  const cell = /cell$|header$/.test(role);
  if (catches(node, role)) return [{ control: target(node, role, items), el: node, items: holds(items) ? items : [] }];
  if (listens && !holds(items)) return clicked(node, role, items);
  if (listens && !cell && role !== "row") {
    const heads = headsOf(node, items), [first] = texts(items), few = items.length <= 40 && !bare(node).querySelector("h1,h2,main,nav,form,table");
    const press = (item) => heads.includes(item) ? pressable(item.el, squeeze(item.text), item)
      : item.items ? { ...item, items: item.items.map(press) } : item;
    if (heads.length) items = items.map(press);
    else if (first && few) return items.map((item) => (item === first ? pressable(first.el, squeeze(first.text), item) : item));
  }
  if (role === "listitem" && !holds(items) && texts(items).length && forItems(inside(node, "ul,ol,[role=list]"))) return clicked(node, role, items);
  const other = listens || mute ? null : heard(node, role, items), parts = other?.items ?? items;
  if (Array.isArray(other)) return other;
  const place = PLACES.has(role) || OTHERS.has(role);
  if (!place || role === "none" || role === "presentation" || role === "rowgroup") return parts;
  return [{ role, name: PLACES.has(role) || /table|grid/.test(role) ? nameOf(node, role) : "", el: node, items: parts }];
}
function frame(node) {
  let body = bodyIn(node);
  if (node.src && body?.ownerDocument.URL === "about:blank" && !/^(about|javascript):/.test(node.src)) body = null; // refused
  const name = squeeze(`${attribute(node, "title") || attribute(node, "aria-label") || attribute(node, "name")}`);
  if (!body) return { frame: keyOf(node), name, url: node.src || (node.srcdoc ? "srcdoc" : ""), el: node };
  const items = [];
  gather(body, false, items);
  return { role: "frame", name, el: node, items };
}

// A control; `field` holds its value, which for a label is another element.
function described(el, role, field) {
  const it = bare(field), form = it.form ?? it.closest("form"), [value, live] = held(field, role);
  const name = nameOf(field, role) || (el === field ? "" : squeeze(words(el, el)));
  if (form && !placed.includes(form)) placed.push(form);
  gestures.delete(el);
  const picks = tagOf(field) === "select", list = Array.from((picks ? field : it.list)?.options ?? []);
  const called = picks ? calledIn(field) : list.map(offered);
  return {
    key: keyOf(el), role, ...cut(name), value, live,
    submits: role === "button" && /^(submit|image)$/.test(it.type), form: form ? placed.indexOf(form) : null,
    field: it.getAttribute("name") ?? "", href: it.getAttribute("href") ?? "",
    options: picks ? list.map((o, i) => [called[i], o.value]) : [], offers: !picks && list.length > 0,
    disabled: off(field),
    said: [...(it.name && !name ? [squeeze(`field ${it.name}`)] : []), ...states(field, role, live), ...choices(list, called, picks)],
    secret: it.type === "password",
  };
}
// What a person types to choose an option of a datalist, and its label.
const offered = (o) => squeeze(o.label && o.label !== o.value ? `${o.value} ${o.label}` : o.value);
function choices(list, called, picks) {
  const all = list.map((o, i) => called[i] + (o.disabled ? " (disabled)" : "")), more = all.length - SHOWN_OPTIONS;
  const rest = more > 0 ? ` | ${more} more${picks ? ": SELECT a part of one" : ""}` : "";
  return all.length ? [`options: ${all.slice(0, SHOWN_OPTIONS).join(" | ")}${rest}`] : [];
}

// The lines of items. `first` marks what a person looks at first: dialogs, menus, messages.
function lay(items, depth, first, lines) {
  let said = [], at = null;
  const push = (parts, el) => lines.push({ depth, parts, at: where(el), first });
  const flush = () => {
    const text = squeeze(said.join(""));
    if (text) push([`text ${text}`], at);
    [said, at] = [[], null];
  };
  for (const item of items) {
    if (item.text) { said.push(item.text); at ??= squeeze(item.text) ? item.el : null; continue; }
    flush();
    if (item.control) { push([{ control: item.control }], item.el); lay(item.items, depth + 1, first, lines); }
    else if (item.frame) push([item], item.el);
    else if (item.role) {
      try { laid(item, depth, first, lines); } catch { push(["text (not read)"], document.body); }
    }
  }
  flush();
}
const FIRST = /^(dialog|alertdialog|menu|listbox|alert|status|tooltip)$/;
// A text without its role. A number in brackets could make an element of it, and is broken as policies/fence.py breaks
// marks: always in a row, where cells that are elements have no role, else after the role of a control.
const ROLES = new RegExp(`^[-\\s]*(${[...CONTROLS, "clickable", "listbox"].join("|")})\\b`, "i");
function plain(part, inRow) {
  if (typeof part !== "string" || !part.startsWith("text ")) return part;
  const text = part.slice(5);
  return inRow || ROLES.test(text) ? text.replace(/\[(?=\d+\])/g, "[ ") : text;
}
const PLAIN = /^(group|article|figure|toolbar|tabpanel|feed|region|log)$/; // said only if named
function laid({ role, name, el, items }, depth, first, lines) {
  const before = lines.length, ahead = first || FIRST.test(role), line = (...parts) => lines.push({ depth, parts, at: where(el), first: ahead });
  const called = (word) => (name ? line(`${word} `, cut(name)) : line(word));
  if (role === "heading" || ((role === "alert" || role === "status") && !holds(items))) {
    if (role === "heading" && holds(items)) return lay(items, depth, ahead, lines);
    return void (squeeze(words(el, el)) && line(`${role} ${squeeze(words(el, el))}`));
  }
  if (role === "listitem") {
    lay(items, depth, ahead, lines);
    const start = lines[before]?.parts;
    if (start) start.splice(0, 1, "- ", plain(start[0], false));
    for (const each of lines.slice(before + 1)) each.depth++;
    return;
  }
  if (role === "row") return row(items, el, depth, ahead, lines);
  if (/table|grid/.test(role) ? called("table") : role === "list" || /cell|header|separator|tooltip|math|scrollbar/.test(role) || (PLAIN.test(role) && !name)) {
    lay(items, depth + (/table|grid/.test(role) || (role === "list" && inside(el, "li")) ? 1 : 0), ahead, lines);
  } else {
    called(role);
    lay(items, depth + 1, ahead, lines);
    if (lines.length === before + 1 && !name && role !== "dialog") lines.pop();
  }
}
// A table row on one line, cells parted by " | "; a row that is too long has a line for each part.
function row(items, el, depth, first, lines) {
  const cells = items.filter((item) => item.role || item.control), parts = [];
  if (!cells.length) return lay(items, depth, first, lines);
  for (const cell of cells) {
    if (parts.length) parts.push(" | ");
    const inner = [];
    lay(cell.role ? cell.items : [cell], 0, first, inner);
    inner.forEach((line, i) => parts.push(...(i ? [" "] : []), ...line.parts.map((each) => plain(each, true))));
  }
  const length = parts.reduce((sum, part) => sum + (part.control ? 20 : (part.name ?? part).length), 0);
  if (length <= MAX_ROW) { if (parts.some((part) => part !== " | ")) lines.push({ depth, parts: ["row ", ...parts], at: where(el), first }); return; }
  lines.push({ depth, parts: ["row"], at: where(el), first });
  lay(items.flatMap((item) => [BREAK, ...(item.role ? item.items : [item])]), depth + 1, first, lines);
}
// Pixels above the window, which are negative, or below it; 0 in it.
function where(el) {
  const view = bare(el).ownerDocument.defaultView, box = bare(el).getBoundingClientRect();
  const down = view === window ? 0 : outer(view, 0, 0).y, [top, bottom] = [box.top + down, box.bottom + down];
  return bottom <= 0 && box.height ? Math.min(-1, bottom) : top >= innerHeight ? Math.max(1, top - innerHeight) : 0;
}
// The lines nearest to the window; half of them may be what a person looks at first. One line stands for those left out
// in a row: `unread` says how many they are.
function nearest(lines) {
  if (lines.length <= MAX_LINES) return lines;
  const order = [...lines].sort((a, b) => Math.abs(a.at) - Math.abs(b.at)), ahead = order.filter(({ first }) => first);
  const kept = new Set([...new Set([...ahead.slice(0, MAX_LINES / 2), ...order])].slice(0, MAX_LINES)), found = [];
  for (const line of lines) {
    const last = found.at(-1), side = Math.sign(line.at);
    if (kept.has(line)) found.push(line);
    else if (last?.unread && last.at === side) last.unread++;
    else found.push({ depth: 0, parts: [], at: side, first: false, unread: 1 });
  }
  return found;
}

function person() {
  const items = [], lines = [];
  [labelled, placed, broken, opening] = [new Map(), [], new Set(), new Map()];
  if (document.body) gather(document.body, false, items);
  lay(items, 0, false, lines);
  const shown = nearest(lines).map((line) => ({ ...line, at: Math.sign(line.at) }));
  return { world, lines: shown, url: location.href, title: squeeze(document.title) };
}
