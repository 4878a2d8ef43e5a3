// Runs in the page's own world before its scripts: marks the elements that listen for the mouse or take what is dropped,
// for page.js and heard.js to number, and lets page.js into closed shadow roots. A custom element is marked later, since it
// may have no attribute when it is made.
(() => {
  const marks = { drop: "agentq-drops", dragover: "agentq-drops", dblclick: "agentq-doubles", contextmenu: "agentq-menus" };
  for (const type of ["click", "mousedown", "mouseup", "pointerdown", "pointerup"]) marks[type] = "agentq-clicks";
  for (const type of ["mouseenter", "mouseover", "pointerenter", "pointerover"]) marks[type] = "agentq-hovers";
  const later = setTimeout;
  // React listens on the box that it draws in, for all that lies there; what has a handler of its own is given one.
  const delegates = (el) => Object.keys(el).some((key) => key.startsWith("_reactListening"));
  const mark = (el, type) => {
    if (!(el instanceof Element) || el.hasAttribute(marks[type])) return;
    if (!el.isConnected && el.localName.includes("-")) later(() => el.setAttribute(marks[type], ""));
    else el.setAttribute(marks[type], "");
  };
  const add = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (Object.hasOwn(marks, type) && !delegates(this)) mark(this, type);
    return add.call(this, type, ...rest);
  };
  for (const type of ["click", "drop", "dblclick", "contextmenu", "mouseenter", "mouseover", "pointerenter", "pointerover"]) {
    const given = Object.getOwnPropertyDescriptor(HTMLElement.prototype, `on${type}`);
    Object.defineProperty(HTMLElement.prototype, `on${type}`, {
      ...given,
      set(handler) { if (handler && !delegates(this)) mark(this, type); given.set.call(this, handler); },
    });
  }
  const closed = new WeakSet(), attach = Element.prototype.attachShadow;
  const root = Object.getOwnPropertyDescriptor(Element.prototype, "shadowRoot");
  Element.prototype.attachShadow = function (init) {
    if (init?.mode === "closed") closed.add(this);
    return attach.call(this, init?.mode === "closed" ? { ...init, mode: "open" } : init);
  };
  Object.defineProperty(Element.prototype, "shadowRoot", {
    ...root, get() { return closed.has(this) ? null : root.get.call(this); },
  });
})();
