// What of a document hears the mouse: clicks, drops, the mouse over it, double clicks, the right button. See page.js.

// What takes what is dragged there, unless it is most of the page: a place to put things has a number, though it is empty.
function catches(node, role) {
  const it = bare(node);
  if (!it.matches("[agentq-drops],[ondrop]") || node === it.ownerDocument.body || !visible(node) || /^(main|dialog|row)$/.test(role)) return false;
  return small(node) && !it.querySelector("h1,main,nav,form");
}
// Whether an element has a size and is less than half of the window. What is larger hears for others.
function small(node) {
  const { width, height } = bare(node).getBoundingClientRect();
  return width * height > 0 && width * height < innerWidth * innerHeight / 2;
}
function target(node, role, items) {
  const control = described(node, "clickable", node), own = holds(items) ? nameOf(node, "group") || role : control.name;
  return { ...control, name: own, said: [...control.said, "takes drops"] };
}
function listening(el) {
  const style = getComputedStyle(el), role = roleOf(el), it = bare(el);
  if (inside(el, "tr,[role=row]") && !squeeze(it.textContent) && it.getBoundingClientRect().width <= EDGE) return false;
  if (role === "gridcell" && it.hasAttribute("tabindex") && it.getAttribute("aria-readonly") !== "true") return true; // arrow keys lead there
  if (it.hasAttribute("agentq-clicks") || it.hasAttribute("onclick") || it.getAttribute("draggable") === "true") return true;
  if (focusable(el) && !PLACES.has(role) && !it.shadowRoot && !it.matches("iframe,dialog,body")) return scrolls(el) ? false : true;
  const over = it.parentElement ?? it.getRootNode().host;
  return !!over && style.cursor === "pointer" && getComputedStyle(over).cursor !== "pointer";
}
// Whether clicks on the items of a list are heard by the list or by what holds little else.
function forItems(list) {
  const hears = list?.closest("[agentq-clicks]");
  return !!hears && hears !== hears.ownerDocument.body && !hears.querySelector("h1,h2,main,nav,article,form,p") &&
    [list, list.parentElement, list.parentElement?.parentElement].includes(hears);
}
const scrolls = (el) => bare(el).scrollHeight > bare(el).clientHeight + 1 && /auto|scroll/.test(getComputedStyle(el).overflowY);
// What listens as a whole is one control, unless it has several parts of one kind: then each of them is.
function clicked(node, role, items) {
  const leaves = [...new Set(texts(items).map((item) => item.el))];
  const alike = leaves.length > 2 && leaves.every((leaf) => tagOf(leaf) === tagOf(leaves[0]) && leaf !== node);
  if (leaves.length > 60 || (leaves.length > 2 && bare(node).querySelector("h1,h2,main,nav,article"))) return items;
  if (alike) return items.map((item) => split(item));
  const shown = leaves.length || (sized(node) && !/^(none|presentation|rowgroup)$/.test(role));
  return shown ? [{ control: described(node, kindOf(role), node), el: node, items: [] }] : items;
}
const kindOf = (role) => (/cell$|header$/.test(role) ? role : "clickable");
const sized = (el) => [el, ...bare(el).querySelectorAll("*")].map(bare)
  .some((each) => each.getClientRects().length && each.getBoundingClientRect().width && each.getBoundingClientRect().height);
const split = (item) => item.items ? { ...item, items: item.items.map(split) }
  : item.text && squeeze(item.text) ? pressable(item.el, squeeze(item.text), item) : item;
const pressable = (el, said, item) => ({ control: { ...described(el, kindOf(roleOf(el)), el), name: said, most: 0 }, el, items: [] });

// The first text of each row in what hears clicks on its rows: children of one kind, each with a control of its own.
function headsOf(node, items) {
  if (!bare(node).matches("[agentq-clicks],[onclick]") || bare(node).querySelector("h1,h2,main,nav,form,table,article,p")) return [];
  const own = pressables(items).filter(({ control }) => /^(button|link|checkbox)$/.test(control?.role));
  const held = own.map(({ el }) => [childOf(node, el), el]).filter(([row, el]) => row && row !== el);
  const rows = new Set(held.map(([row]) => row)), heads = new Map();
  const kinds = new Set(Array.from(rows, (row) => `${tagOf(row)} ${/^(li|tr)$/.test(tagOf(row)) ? "" : bare(row).classList[0] ?? ""}`));
  if (rows.size < 2 || rows.size > 60 || kinds.size > 1) return [];
  for (const item of texts(items)) {
    const row = childOf(node, item.el);
    if (rows.has(row) && !heads.has(row) && /[\p{L}\p{N}]/u.test(item.text)) heads.set(row, item);
  }
  return heads.size > 1 ? [...heads.values()] : [];
}
// The child of `over` that holds an element; null if it lies elsewhere, or is `over`.
function childOf(over, el) {
  for (let at = el; at;) {
    const up = at.assignedSlot ?? at.parentNode ?? at.host;
    if (up === over) return at;
    at = up;
  }
  return null;
}

// What hears no click, but a double click, the right button or the mouse over it. Its line says which, and CLICK does
// the first of them.
const HEARS = {
  "double click": "[agentq-doubles],[ondblclick]",
  "right click": "[agentq-menus],[oncontextmenu]:not([oncontextmenu^='return false'])",
  hover: "[agentq-hovers],[onmouseenter],[onmouseover],[onpointerenter],[onpointerover]",
};
const gestures = new WeakMap(); // numbered element -> the first of what it hears
const gesture = (key) => gestures.get(find(key)) ?? "";
const hearing = (el) => Object.keys(HEARS).filter((how) => bare(el).matches(HEARS[how]));
function otherwise(control, el, hows) {
  gestures.set(el, hows[0]);
  return { ...control, said: [...control.said, ...hows] };
}
// Such an element as a list of one item, or { items } with the first text as a control. Null if it needs no number: the
// mouse over a control within is over it, too. Many texts are no button, unless a style shows something on hover.
function heard(node, role, items) {
  const { body } = bare(node).ownerDocument, read = /^(pre|code|p|dt|dd|blockquote)$/.test(tagOf(node));
  if (node === body || /dialog$|^(main|heading|article)$/.test(role) || !visible(node)) return null;
  const shows = read ? [] : opens(node); // beside what is read, a style shows buttons to copy it or to link to it
  const lights = /row$|cell$|header$/.test(role); // tables often listen to light up a row
  const hows = small(node) ? hearing(node).filter((how) => how !== "hover" || !lights) : [];
  if (shows.length && !hows.includes("hover")) hows.push("hover");
  if (!hows.length) return null;
  const free = ({ el }) => !shows.some((each) => encloses(each, el)), said = texts(items).filter(free);
  if (pressables(items).some(free) || (!shows.length && said.length > 3 && role !== "row")) return null;
  if (!said.length && !nameOf(node, "group") && !bare(node).matches("i,:has(img,svg,i)")) return null;
  if (!PLACES.has(role) && !OTHERS.has(role) && said.length < 3 && !holds(items)) {
    return [{ control: otherwise(described(node, "clickable", node), node, hows), el: node, items: [] }];
  }
  const [first] = said, press = (item) => {
    if (item !== first) return item.items ? { ...item, items: item.items.map(press) } : item;
    const button = pressable(item.el, squeeze(item.text), item);
    return { ...button, control: otherwise(button.control, item.el, hows) };
  };
  return first ? { items: items.map(press) } : null;
}
const pressables = (items) =>
  items.flatMap((item) => [...(item.control || item.frame ? [item] : []), ...pressables(item.items ?? [])]);

// What the style sheets of a document or a shadow root show while the mouse is over an element, and is not to be seen now.
// Style sheets of other origins cannot be read.
const MOVES = "height maxHeight width maxWidth transform scale left right top bottom clip clipPath".split(" ");
const MAX_RULES = 500;
const ruled = new WeakMap(); // root -> [how many rules there were, those that show something on hover]
function opens(node) {
  const root = bare(node).getRootNode();
  if (!opening.has(root)) opening.set(root, openers(root));
  return opening.get(root).get(node) ?? [];
}
function openers(root) {
  const found = new Map();
  for (const rule of hoverRules(root)) {
    try {
      for (const el of Array.from(root.querySelectorAll(rule.shown)).slice(0, MANY)) {
        const over = waits(el, rule) && hoveredFor(el, rule.over);
        if (over) found.set(over, [...(found.get(over) ?? []), el]);
      }
    } catch { /* a selector that cannot be asked for */ }
  }
  return found;
}
// Whether something to read or to press is hidden in the way that a rule undoes.
function waits(el, { displays, reveals, moves }) {
  if (!/[\p{L}\p{N}]/u.test(el.textContent) && !el.querySelector("img,svg,input,button,select,textarea")) return false;
  const { display, visibility } = getComputedStyle(el), { width, height } = el.getBoundingClientRect();
  if (display === "none") return displays;
  if (visibility !== "visible") return reveals;
  return moves && el.checkVisibility() && (!width || !height || outside(el));
}
// The nearest element around or before `el` that a selector fits.
function hoveredFor(el, selector) {
  for (let at = el; at; at = at.parentElement) {
    if (at !== el && at.matches(selector)) return at;
    for (let kin = at.previousElementSibling, i = 0; kin && i < MANY; kin = kin.previousElementSibling, i++)
      if (kin.matches(selector)) return kin;
  }
  return null;
}
function hoverRules(root) {
  const all = [...(root.styleSheets ?? []), ...(root.adoptedStyleSheets ?? [])];
  const sheets = all.filter((sheet) => !sheet.disabled).map(rulesOf);
  const count = sheets.map((rules) => rules.length).join();
  if (ruled.get(root)?.[0] !== count) {
    const found = [];
    for (const rules of sheets) addRules(rules, "", found);
    ruled.set(root, [count, found.slice(0, MAX_RULES)]);
  }
  return ruled.get(root)[1];
}
function rulesOf(sheet) {
  try { return sheet?.cssRules ?? []; } catch { return []; } // of another origin
}
function addRules(rules, around, into) {
  for (const rule of rules) {
    if (rule.media && !matchMedia(rule.media.mediaText).matches) continue;
    const given = rule.selectorText, outer = around.includes(",") ? `:is(${around})` : around;
    const joined = given?.includes("&") ? given.replaceAll("&", outer) : `${outer} ${given}`.trim();
    const selector = given === undefined ? around : joined;
    if (rule.style && selector.includes(":hover")) into.push(...shownBy(rule.style, selector));
    addRules(rule.styleSheet ? rulesOf(rule.styleSheet) : rule.cssRules ?? [], selector, into);
  }
}
function shownBy(style, selector) {
  const displays = !!style.display && style.display !== "none", reveals = /^(visible|inherit)/.test(style.visibility);
  const moves = MOVES.some((each) => style[each]);
  if (!displays && !reveals && !moves) return [];
  return parted(selector).map(hoverOf).filter(Boolean).map((found) => ({ ...found, displays, reveals, moves }));
}
// The selectors of a list, and where each character lies in brackets.
function nested(selector) {
  let depth = 0;
  return Array.from(selector, (c) => (/[([]/.test(c) ? ++depth : /[)\]]/.test(c) ? depth-- : depth));
}
function parted(list) {
  const depths = nested(list), found = [""];
  Array.from(list).forEach((c, i) => { if (c === "," && !depths[i]) found.push(""); else found[found.length - 1] += c; });
  return found.map((each) => each.trim());
}
// Of "li:hover > ul": { over: "li", shown: "li > ul" }. Null if the rule is about what is hovered itself.
function hoverOf(selector) {
  const any = (text) => text.replaceAll(":hover", ":is(*)");
  const within = /:is\(([^,]*:hover) \*\)/.exec(selector); // as Tailwind writes it
  if (within) return { over: any(within[1]), shown: any(selector) };
  const depths = nested(selector), at = selector.lastIndexOf(":hover"), end = at + selector.slice(at).search(/[\s>+~]/);
  return at < 0 || depths[at] || end < at ? null : { over: any(selector.slice(0, end)), shown: any(selector) };
}
