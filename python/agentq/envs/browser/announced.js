// Runs in the page's own world before its scripts, where all that they do later is a timer or an animation frame: keeps
// when each of those is due. page.js asks by events, whose default is prevented for yes.
(() => {
  const due = new Map(); // "kind id" -> time of performance.now()
  const run = (work, args) => (typeof work === "function" ? work.apply(window, args) : (0, eval)(work));
  const announce = (kind, begin, again) => (work, ms, ...args) => {
    const wait = kind === "frame" ? 0 : Math.max(0, Number(ms) || 0);
    const note = () => due.set(`${kind} ${id}`, performance.now() + wait);
    const id = begin.call(window, (...given) => {
      if (again) note(); else due.delete(`${kind} ${id}`);
      run(work, kind === "frame" ? given : args);
    }, wait);
    note();
    return id;
  };
  const forget = (kind, end) => (id) => { due.delete(`${kind} ${id}`); end.call(window, id); };
  window.setTimeout = announce("timer", window.setTimeout, false);
  window.setInterval = announce("timer", window.setInterval, true);
  window.requestAnimationFrame = announce("frame", window.requestAnimationFrame, false);
  window.clearTimeout = window.clearInterval = forget("timer", window.clearTimeout);
  window.cancelAnimationFrame = forget("frame", window.cancelAnimationFrame);
  const answer = (question, holds) =>
    document.addEventListener(`agentq-${question}`, (event) => { if (holds(event.detail)) event.preventDefault(); });
  let marked = [];
  answer("due", (ms) => Math.min(...due.values()) <= performance.now() + ms);
  answer("mark", () => { marked = Array.from(due.keys()); });
  answer("run", (script) => { (0, eval)(script); return true; });
  answer("left", () => marked.some((each) => due.has(each)));
})();
