// Runs in the page's own world before its scripts: marks the elements that listen for clicks, for page.js to number.
(() => {
  const clicks = new Set(["click", "mousedown", "mouseup", "pointerdown", "pointerup"]);
  const add = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (clicks.has(type) && this instanceof Element && !this.hasAttribute("agentq-clicks")) this.setAttribute("agentq-clicks", "");
    return add.call(this, type, ...rest);
  };
})();
