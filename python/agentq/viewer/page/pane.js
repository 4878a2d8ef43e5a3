// One tree or episode: its drawing, its outline, what is known about the chosen node, and its playback.

const BEST = [3, 5, 8, 20, Infinity];

class Pane {
  constructor(app) {
    this.app = app;
    this.node = 0;
    this.rollout = null; // the number of rollouts shown; null for all
    this.best = 8;
    this.untried = false;
    this.widened = new Set();
    this.matches = new Set();
    this.drawing = new Drawing(this);
    this.outline = new Outline(this);
    this.details = new Details(this);
    this.head = h("header", {});
    this.tools = h("div", { class: "tools", role: "toolbar", "aria-label": "tree" });
    this.element = h("article", { class: "pane" }, this.head, this.tools,
      h("div", { class: "parts" }, this.outline.list,
        h("div", { class: "canvas" }, this.drawing.canvas, this.legend()), this.details.element));
    this.element.onfocusin = this.element.onpointerdown = () => app.focus(this);
  }

  async open(row, { node = 0, rollout = null, view = "before" } = {}) {
    this.pause();
    if (!(await this.read(row))) return;
    const { tree } = this;
    this.node = node < tree.size ? node : 0;
    this.rollout = rollout !== null && rollout < tree.rollouts ? rollout : null;
    this.details.view = view;
    this.widened.clear();
    this.matches.clear();
    this.episode = row.kind === "trajectory"; // has no alternatives to draw
    this.outline.open = new Set(this.episode ? tree.parent.map((_, at) => at) : [0]);
    this.element.classList.toggle("episode", this.episode);
    this.drawing.placed = false;
    this.renew();
    this.showHead();
    this.showTools();
    this.drawing.fit(0.8);
  }

  /** Reads the tree of a row. Returns whether that is still the one to show. */
  async read(row) {
    this.asked = row;
    const tree = new Tree(await read(`tree${row.id}`), row, this.app.index.runs[row.run]);
    if (this.asked !== row) return false;
    this.row = row;
    this.tree = tree;
    return true;
  }

  /** The same tree after more rollouts. What is chosen, open and in sight stays, by the actions that lead to it. */
  async grow(row) {
    const before = this.tree;
    if (!(await this.read(row))) return;
    const { tree, drawing } = this, place = drawing.at.get(this.node), step = (node, old) =>
      tree.children[node].find((child) => tree.text("action", child) === before.text("action", old)) ?? node;
    const now = (old) => before.path(old).slice(1).reduce(step, 0);
    this.node = now(this.node);
    this.widened = new Set([...this.widened].map(now));
    this.outline.open = new Set([...this.outline.open].map(now));
    this.renew(this.details.element.scrollTop);
    this.find(this.query.value);
    drawing.y += (place.y - drawing.at.get(this.node).y) * drawing.scale;
    this.showHead();
    this.showMoment();
    this.changed();
  }

  /** Draws everything again after a change to which nodes are shown. */
  renew(top = 0) {
    this.cache = new Map();
    this.path = null;
    this.drawing.layout();
    this.outline.show();
    this.details.show(top);
  }

  /** The children of each node that are shown: those tried, of wide nodes the most visited; and how many are left out. */
  shown() {
    const { tree, cache } = this;
    const below = (node) => {
      if (!cache.has(node)) cache.set(node, this.chosenBelow(tree, node));
      return cache.get(node);
    };
    return { below };
  }

  chosenBelow(tree, node) {
    const { N, W } = tree.after(this.rollout), kept = new Set([...this.bold(), ...tree.path(this.node)]);
    const all = tree.children[node].filter((child) => this.untried || kept.has(child) || tree.tried(child, N));
    if (all.length <= this.best || this.widened.has(node)) return { nodes: all, more: 0 };
    const mean = (child) => (N[child] ? W[child] / N[child] : 0);
    const ranked = all.slice().sort((a, b) => kept.has(b) - kept.has(a) || N[b] - N[a] || mean(b) - mean(a) || a - b);
    const nodes = ranked.slice(0, this.best).sort((a, b) => a - b);
    return { nodes, more: all.length - nodes.length };
  }

  /** The nodes drawn bold: the way of the last rollout in playback, else the way to the end that counts. */
  bold() {
    const { tree, rollout } = this;
    return (this.path ??= new Set(tree.path(rollout === null ? tree.best : rollout ? tree.ends[rollout - 1] : 0)));
  }

  notes(node) {
    const { tree } = this;
    return [tree.success[node] ? tree.solved : "", tree.text("error", node)].filter(Boolean).join(", ");
  }

  choose(node) {
    if (!(node >= 0 && node < this.tree.size) || node === this.node) return;
    const hidden = !this.drawing.at.has(node);
    this.node = node;
    if (hidden) {
      this.cache.clear();
      this.drawing.layout();
    }
    this.outline.show();
    this.details.show();
    this.drawing.reveal(node);
    this.changed();
  }

  widen(node) {
    this.widened.add(node);
    this.renew();
  }

  changed() {
    this.app.changed();
  }

  showHead() {
    const { row, tree, app } = this, run = app.index.runs[row.run];
    const facts = [row.stage, `${row.env}, ${row.split} ${row.seed % 1e9}`,
      ...(this.episode ? [`attempt ${row.key.split("/").at(-1)}`, plural(tree.size - 1, "step")] : [plural(tree.size, "node")]),
      tree.rollouts > 1 ? plural(tree.rollouts, "rollout") : "",
      tree.blend ? `${plural(row.pairs, "pair")} kept, ${row.dropped} dropped` : ""];
    this.head.replaceChildren(
      h("p", { class: "facts" }, h("span", { class: `badge ${row.outcome}` }, `${MARKS[row.outcome]} ${OUTCOMES[row.outcome]}`),
        app.index.runs.length > 1 && h("strong", {}, run.name), ...facts.filter(Boolean).map((fact) => h("span", {}, fact)),
        row.stop && h("span", {}, row.stop)),
      h("h1", { title: row.task }, row.task || "(no instruction)"));
  }

  showTools() {
    const { tree, app } = this, button = (text, title, onclick) => h("button", { title, "aria-label": title, onclick }, text);
    this.slider = h("input", { type: "range", min: 1, "aria-label": "rollouts shown",
      oninput: () => this.play(Number(this.slider.value)) });
    this.moment = h("output", {});
    this.playButton = button("▶", "play the search, rollout by rollout (space)", () => this.toggle());
    const wide = h("select", { title: "children shown at each node, the most visited ones", onchange: () => {
      this.best = BEST[wide.selectedIndex];
      this.widened.clear();
      this.renew();
    } }, BEST.map((k) => h("option", { selected: k === this.best }, k === Infinity ? "all children" : `best ${k}`)));
    const untried = h("input", { type: "checkbox", checked: this.untried, onchange: () => {
      this.untried = untried.checked;
      this.renew();
    } });
    this.query = h("input", { type: "search", placeholder: "find in the tree  /", "aria-label": "find in the tree",
      oninput: () => this.find(this.query.value), onkeydown: (event) => { if (event.key === "Enter") this.next(this.matches); } });
    this.found = h("output", { class: "soft" });
    this.playback = h("span", { class: "playback" }, this.playButton, this.slider, this.moment);
    const zoom = h("span", { class: "zoom" }, button("−", "zoom out (-)", () => this.drawing.zoom(1 / 1.3)),
      button("fit", "show the whole tree (0)", () => this.drawing.fit()), button("+", "zoom in (+)", () => this.drawing.zoom(1.3)));
    const drawn = this.episode ? [] : [wide, h("label", {}, untried, " untried"), zoom];
    const find = h("span", { class: "find" }, this.query, this.found);
    this.tools.replaceChildren(...[this.playback, find, ...drawn, app.comparing(this)].filter(Boolean));
    this.showMoment();
  }

  showMoment() {
    const { tree, rollout } = this;
    this.moment.textContent = `rollout ${rollout ?? tree.rollouts} of ${tree.rollouts}`;
    this.playback.hidden = tree.rollouts < 2;
    this.slider.max = tree.rollouts;
    this.slider.value = rollout ?? tree.rollouts;
    this.playButton.textContent = this.timer ? "❚❚" : "▶";
  }

  /** Shows the tree after `rollout` rollouts, and the end of the last of them. */
  play(rollout) {
    const { tree } = this, t = Math.min(Math.max(1, rollout), tree.rollouts);
    this.rollout = t === tree.rollouts ? null : t;
    this.node = tree.ends[t - 1];
    this.renew();
    this.drawing.reveal(this.node);
    this.showMoment();
    this.changed();
  }

  toggle() {
    if (this.timer) return this.pause();
    if (!(this.tree?.rollouts > 1)) return;
    this.timer = setInterval(() => {
      const next = (this.rollout ?? this.tree.rollouts) + 1;
      next > this.tree.rollouts ? this.pause() : this.play(next);
    }, 900);
    this.play(this.rollout === null ? 1 : this.rollout + 1);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    if (this.moment) this.showMoment();
  }

  step(by) {
    if (this.tree.rollouts > 1) this.play((this.rollout ?? this.tree.rollouts) + by);
  }

  /** Marks the nodes whose action, thought or page contains a text. */
  find(text) {
    const { tree } = this, wanted = text.trim().toLowerCase();
    const inTexts = new Set(wanted ? tree.texts.flatMap((each, i) => (each?.toLowerCase?.().includes(wanted) ? [i] : [])) : []);
    const inPages = new Set(tree.pages.flatMap((page, i) => ([page.url, ...page.lines].some((line) => inTexts.has(line)) ? [i] : [])));
    const columns = ["action", "thought", "plan", "explanation", "error", "message"];
    const has = (node) => columns.some((name) => inTexts.has(tree[name][node])) || inPages.has(tree.shows[node]);
    this.matches = new Set(wanted ? tree.parent.map((_, node) => node).filter(has) : []);
    this.found.textContent = wanted ? plural(this.matches.size, "match").replace("matchs", "matches") : "";
    this.drawing.layout();
  }

  /** Goes to the next node of a set, in their order, and from the last to the first. */
  next(nodes) {
    const all = [...nodes].sort((a, b) => a - b);
    if (all.length) this.choose(all.find((node) => node > this.node) ?? all[0]);
  }

  legend() {
    const scale = h("span", { class: "scale", "aria-hidden": "true" });
    return h("p", { class: "legend" }, "Q low ", scale, " high · size: visits · square: end · ",
      h("span", { class: "twice" }), " solved · ", h("span", { class: "bad" }, "×"), " error · dashed: not exactly restored");
  }

  /** The drawing's keys. Returns whether it knew the key. */
  key(key) {
    const { tree, node } = this, below = this.shown().below(node).nodes, beside = node ? this.shown().below(tree.parent[node]).nodes : [0];
    const every = (test) => new Set(tree.parent.map((_, at) => at).filter(test));
    const { N } = tree.after(this.rollout), rank = (a, b) => this.bold().has(b) - this.bold().has(a) || N[b] - N[a];
    const keys = {
      ArrowLeft: () => this.choose(tree.parent[node]),
      ArrowRight: () => this.choose(below.slice().sort(rank)[0]),
      ArrowUp: () => this.choose(beside[beside.indexOf(node) - 1]),
      ArrowDown: () => this.choose(beside[beside.indexOf(node) + 1]),
      Home: () => this.choose(0),
      b: () => this.choose(tree.best),
      e: () => this.next(every((at) => tree.text("error", at))),
      s: () => this.next(every((at) => tree.success[at])),
      v: () => this.details.choose(VIEWS[(VIEWS.findIndex(([name]) => name === this.details.view) + 1) % VIEWS.length][0]),
      " ": () => this.toggle(),
      "[": () => this.step(-1),
      "]": () => this.step(1),
      "/": () => this.query.focus(),
      0: () => this.drawing.fit(),
      "+": () => this.drawing.zoom(1.3),
      "-": () => this.drawing.zoom(1 / 1.3),
    };
    keys[key]?.();
    return key in keys;
  }
}
