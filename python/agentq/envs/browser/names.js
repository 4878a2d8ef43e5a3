// Roles, names and states of elements as assistive technology reports them (WAI-ARIA 1.2, accname 1.2; HTML-AAM). See page.js.
const CONTROLS = new Set(
  ("button link checkbox radio switch tab menuitem menuitemcheckbox menuitemradio option treeitem textbox searchbox " +
    "combobox slider spinbutton file").split(" "));
const PLACES = new Set(
  ("banner navigation main complementary contentinfo region form search dialog alertdialog group radiogroup toolbar menu " +
    "menubar listbox tablist tabpanel tree article figure feed log alert status").split(" "));
const OTHERS = new Set(
  ("list listitem table grid treegrid row cell gridcell columnheader rowheader rowgroup heading img separator progressbar " +
    "meter scrollbar tooltip math none presentation").split(" "));
const KIND = {
  button: "button", submit: "button", reset: "button", image: "button", checkbox: "checkbox", radio: "radio",
  range: "slider", number: "spinbutton", search: "searchbox", file: "file", hidden: "",
};
const ROLE = {
  button: "button", textarea: "textbox", nav: "navigation", main: "main", search: "search", ul: "list", ol: "list",
  menu: "list", li: "listitem", table: "table", tr: "row", td: "cell", caption: "none", fieldset: "group", details: "group",
  dialog: "dialog", hr: "separator", progress: "progressbar", meter: "meter", output: "status", article: "article",
  figure: "figure", h1: "heading", h2: "heading", h3: "heading", h4: "heading", h5: "heading", h6: "heading",
};
const FORMATS = {
  date: "YYYY-MM-DD", time: "HH:MM", month: "YYYY-MM", week: "YYYY-Www", "datetime-local": "YYYY-MM-DDTHH:MM",
  color: "#rrggbb", email: "email", url: "url", tel: "tel", password: "password",
};
const SAID = 300; // characters of a name; a longer one ends with … (reader.py cuts it, once secrets are masked)
const HTML = "http://www.w3.org/1999/xhtml", DRAWN = new Set(["svg", "a", "title", "style", "script"]);

// The name of an element of HTML, or of one that means the same in a drawing; "" for others, whatever they are called.
function tagOf(el) {
  const { localName, namespaceURI } = bare(el);
  return namespaceURI === HTML || DRAWN.has(localName) ? localName : "";
}
const drawing = (el) => !!bare(el).namespaceURI?.endsWith("/svg");
const attribute = (el, name) => squeeze(bare(el).getAttribute(name));
const focusable = (el) =>
  bare(el).tabIndex >= 0 && (bare(el).hasAttribute("tabindex") || /^(a|button|input|select|textarea)$/.test(tagOf(el)));
const inside = (el, selector) => bare(bare(el).parentElement)?.closest(selector);

function native(el) {
  const tag = tagOf(el);
  if (tag === "input") return KIND[el.type] ?? (el.list ? "combobox" : "textbox");
  if (tag === "select") return el.multiple || el.size > 1 ? "listbox" : "combobox";
  if (tag === "a" || tag === "area") return el.hasAttribute("href") || el.hasAttribute("xlink:href") ? "link" : "";
  if (tag === "summary") return tagOf(el.parentElement ?? el) === "details" ? "button" : "";
  if (tag === "img") return el.getAttribute("alt") === "" ? "none" : "img";
  if (tag === "svg") return "img";
  if (tag === "th") return el.scope === "row" || (!el.scope && el.cellIndex === 0 && el.parentElement?.querySelector("td")) ? "rowheader" : "columnheader";
  if (tag === "header" || tag === "footer") {
    return inside(el, "article,aside,main,nav,section") ? "" : tag === "header" ? "banner" : "contentinfo";
  }
  if (tag === "aside") return "complementary";
  if (tag === "section" || tag === "form") return bare(el).matches("[aria-label],[aria-labelledby],[title]") ? { section: "region", form: "form" }[tag] : "";
  return ROLE[tag] ?? (editable(el) ? "textbox" : "");
}
// An area of an image map is drawn as its image is, and has no box of its own: in this world, it has that of its shape.
function imageOf(area) {
  const { name } = area.closest("map") ?? {}, images = Array.from(area.getRootNode().querySelectorAll("img[usemap]"));
  return name && images.find((image) => image.useMap === `#${name}` && !hidden(image) && visible(image));
}
function shapeOf(area) {
  const image = imageOf(area), box = image?.getBoundingClientRect() ?? new DOMRect();
  const at = area.coords.split(/[\s,;]+/).map(Number), [x, y, radius] = at;
  if (!at.every(Number.isFinite) || at.length < 3) return box;
  const corners = /^circ/i.test(area.shape) ? [x - radius, y - radius, x + radius, y + radius] : at;
  const [xs, ys] = [0, 1].map((odd) => corners.filter((_, i) => i % 2 === odd)), [left, top] = [xs, ys].map((all) => Math.min(...all));
  return new DOMRect(box.left + left, box.top + top, Math.max(...xs) - left, Math.max(...ys) - top);
}
if (FULL) Object.assign(HTMLAreaElement.prototype, {
  getBoundingClientRect() { return shapeOf(this); },
  getClientRects() { return [shapeOf(this)]; },
  scrollIntoView(how) { imageOf(this)?.scrollIntoView(how); },
});
// Every control of agentq is one of CONTROLS; a list box of HTML is one control, one of ARIA a place with options.
function roleOf(el) {
  const known = (role) => CONTROLS.has(role) || PLACES.has(role) || OTHERS.has(role);
  const given = (bare(el).getAttribute("role") ?? "").toLowerCase().split(/\s+/).find(known);
  const own = native(el);
  if (!given || ((given === "none" || given === "presentation") && CONTROLS.has(own))) return own;
  return given;
}

const children = (node) => {
  const { localName, shadowRoot, childNodes } = bare(node);
  if (shadowRoot) return shadowRoot.childNodes;
  const given = (localName === "slot" && node.assignedNodes?.()) || [];
  return given.length ? given : childNodes;
};
const around = (el, which) => {
  const { content, display } = getComputedStyle(el, which);
  const parts = Array.from(content.matchAll(/"((?:[^"\\]|\\.)*)"/g), (part) => part[1].replace(/\\(.)/g, "$1"));
  const said = (content.includes("\" / \"") ? parts.at(-1) : parts[0]) ?? ""; // what follows the slash is read instead
  return said && display !== "inline" ? ` ${said} ` : said;
};
const NESTED = /^(tree|treeitem|group|menu|menuitem)$/;
// The words of an element as a part of a name: `top` is the element that is named, `without` the field of a label.
function words(node, top, without) {
  if (node.nodeType === 3) return node.data;
  const it = bare(node);
  if (it.nodeType !== 1 || SKIPPED.has(tagOf(node)) || node === without) return "";
  if (node !== top) {
    if (hidden(node) || !visible(node) && !it.children.length) return "";
    const label = attribute(node, "aria-label");
    if (label) return ` ${label} `;
    if (it.type === "password") return "";
    const role = roleOf(node);
    if (role === "listbox" && roleOf(top) === "combobox" && it.querySelector("[role=option]:not([aria-selected=true])")) return ""; // its choices
    if (NESTED.test(role) && NESTED.test(roleOf(top))) return ""; // parts of a tree or a menu have names of their own
    if (tagOf(node) === "select") return ` ${Array.from(node.selectedOptions, (o) => o.textContent).join(" ")} `;
    if (/^(textbox|searchbox)$/.test(role) && "value" in node) return ` ${node.value} `;
    if (/^(slider|spinbutton)$/.test(role)) return ` ${node.value ?? node.getAttribute("aria-valuetext") ?? node.getAttribute("aria-valuenow") ?? ""} `;
    if (tagOf(node) === "img") return ` ${node.alt || node.title} `;
    if (tagOf(node) === "input") return /^(submit|button|reset)$/.test(node.type) ? node.value : "";
  }
  if (tagOf(node) === "svg") return ` ${node.querySelector(":scope > title")?.textContent ?? ""} ${Array.from(node.querySelectorAll("text"), (t) => t.textContent).join(" ")} `;
  const said = around(node, "::before") + Array.from(children(node), (kid) => words(kid, top, without)).join("") + around(node, "::after");
  return (INLINE.has(getComputedStyle(node).display) ? said : ` ${said} `) || it.getAttribute("title") || "";
}
const referred = (el, name) => (bare(el).getAttribute(name) ?? "").split(/\s+/).filter(Boolean)
  .map((id) => bare(el).getRootNode().getElementById?.(id)).filter(Boolean);
function nativeName(el) {
  const tag = tagOf(el);
  if (tag === "input" && /^(submit|reset|button|image)$/.test(el.type)) {
    return el.value || el.alt || el.title || { submit: "Submit", reset: "Reset", image: "Submit" }[el.type];
  }
  if (tag === "img" || tag === "area") return el.alt;
  const child = drawing(el) ? "title" : { fieldset: "legend", table: "caption", figure: "figcaption" }[tag];
  const found = child && Array.from(el.children).find((kid) => tagOf(kid) === child);
  if (found) return drawing(el) ? found.textContent : words(found, found);
  if (tag === "optgroup") return el.label;
  return labelsOf(el).map((label) => words(label, label, el)).join(" ");
}
const FROM_CONTENT = new Set(
  ("button link checkbox radio switch tab menuitem menuitemcheckbox menuitemradio option treeitem heading cell gridcell " +
    "columnheader rowheader row tooltip clickable").split(" "));
// An icon of a font is a character that means nothing; its class tells what it is.
const GLYPHS = /[\ue000-\uf8ff\u{f0000}-\u{10fffd}]/gu;
const iconOf = (el) => (squeeze(bare(el).style?.backgroundColor) || bare(el).id ? el : bare(el).querySelector("i[class],span[class]") ?? el);
function nameOf(el, role) {
  const named = referred(el, "aria-labelledby").map((each) => attribute(each, "aria-label") || words(each, each)).join(" ");
  const content = () => (FROM_CONTENT.has(role) && !/^(input|select|textarea)$/.test(tagOf(el)) ? words(el, el) : "");
  return squeeze(named) || attribute(el, "aria-label") || squeeze(nativeName(el)) || squeeze(content().replace(GLYPHS, "")) ||
    squeeze(bare(el).title) || squeeze(bare(el).placeholder) || attribute(el, "aria-placeholder") ||
    (/^(button|link|clickable|file)$/.test(role) ? squeeze(looks(iconOf(el))) : "");
}
// A name as a part of a line or a control. What is far beyond its end need not be sent.
const cut = (name) => ({ name: name.slice(0, 10 * SAID), most: SAID });

// What a combobox shows besides its names and those of its parts.
function chosen(el) {
  const own = Array.from(el.querySelectorAll("label"), (label) => squeeze(label.textContent));
  const said = squeeze(attribute(el, "aria-valuetext") || words(el, el));
  return own.includes(said) || said === attribute(el, "aria-label") ? "" : said;
}
// What a field holds: [as the page came, now].
function held(el, role) {
  if (tagOf(el) === "input" && el.type === "file") return ["", Array.from(el.files ?? [], (file) => file.name).join(" , ")];
  if (/^(input|select|textarea)$/.test(tagOf(el))) return values(el, role);
  if (role === "combobox") return ["", chosen(el)];
  if (role === "textbox" || role === "searchbox") return ["", squeeze(el.isContentEditable ? el.innerText : el.getAttribute("aria-valuetext"))];
  if (role === "slider" || role === "spinbutton") return ["", squeeze(el.getAttribute("aria-valuetext") ?? el.getAttribute("aria-valuenow"))];
  const checked = bare(el).getAttribute("aria-checked");
  return ["", checked === "true" ? "checked" : checked === "mixed" ? "mixed" : ""];
}
// What else a person sees of a control: its state, what it accepts, why it is refused.
function states(control, role, live) {
  const el = bare(control), said = [], is = (name, value = "true") => el.getAttribute(`aria-${name}`) === value;
  const set = (name) => el.hasAttribute(`aria-${name}`) && !is(name, "false");
  if (off(control)) said.push("disabled");
  for (const state of ["pressed", "selected"]) if (is(state)) said.push(state);
  if (el.indeterminate) said.push("mixed");
  if (set("current")) said.push("current");
  if (el.hasAttribute("aria-expanded")) said.push(is("expanded") ? "expanded" : "collapsed");
  else if (tagOf(control) === "summary") said.push(el.parentElement?.open ? "expanded" : "collapsed");
  if (el.required || is("required")) said.push("required");
  if (el.readOnly || is("readonly")) said.push("read-only");
  if (tagOf(control) === "input") {
    if (FORMATS[el.type]) said.push(FORMATS[el.type]);
    if (/^(number|range)$/.test(el.type)) said.push([el.min && `from ${el.min}`, el.max && `to ${el.max}`, el.step && el.step !== "any" && `step ${el.step}`].filter(Boolean).join(" "));
    if (el.type === "file") said.push(el.multiple ? "files" : "a file", el.accept && `accepts ${el.accept}`);
    if (el.pattern) said.push(`like ${el.title || el.pattern}`);
  } else if (role === "slider" || role === "spinbutton") {
    said.push(["min", "max"].map((end) => el.getAttribute(`aria-value${end}`)).filter(Boolean).join(" to "));
  }
  if (el.title && /^(button|link|clickable)$/.test(role) && !/\p{L}/u.test(nameOf(control, role))) said.push(el.title); // ➕
  if (el.placeholder && !live) said.push(`such as ${el.placeholder}`);
  if (is("invalid") || (el.willValidate && el.matches(":user-invalid"))) {
    const why = el.validationMessage || referred(control, "aria-errormessage").map((each) => words(each, each)).join(" ");
    said.push(`invalid ${why ?? ""}`);
  }
  if (el.draggable && !/^(a|area|img)$/.test(tagOf(control))) said.push("draggable");
  return said.map(squeeze).filter(Boolean);
}
