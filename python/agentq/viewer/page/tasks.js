// The list of tasks: a row for each task, a column for each stage, a mark for each tree or episode.

const OUTCOMES = { solved: "solved", failed: "not solved", broken: "broken by the world", growing: "in progress" };
const FILTERS = ["q", "run", "stage", "outcome", "error", "split"];
const FIRST = 200; // rows at once; more when asked

class Tasks {
  constructor(app) {
    this.app = app;
    this.filters = {};
    this.most = FIRST;
    this.element = $("tasks");
    this.search = h("input", { type: "search", placeholder: "find a task  /", "aria-label": "find a task", oninput: () => this.set("q", this.search.value) });
    this.selects = h("span", { class: "selects" });
    this.sum = h("p", { class: "sum", role: "status" });
    this.lost = h("p", { role: "status" });
    this.table = h("table", { class: "grid" });
    this.table.onkeydown = (event) => this.key(event);
    this.element.append(h("div", { class: "tools" }, this.search, this.selects), this.sum, this.lost, h("div", { class: "wide" }, this.table));
  }

  set(name, value) {
    this.filters[name] = value;
    this.most = FIRST;
    this.show();
    this.app.changed();
  }

  /** The items that a filter lets through; without one of them, to list what it could be set to. */
  items(without = "") {
    const { filters } = this, wants = (name, value) => name === without || !filters[name] || filters[name] === value;
    const words = without === "q" ? [] : (filters.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    return this.app.index.items.filter((item) =>
      wants("run", String(item.run)) && wants("stage", item.stage) && wants("outcome", item.outcome) && wants("split", item.split) &&
      (without === "error" || !filters.error || item.errors[filters.error]) &&
      words.every((word) => `${item.env} ${item.seed} ${item.task}`.toLowerCase().includes(word)));
  }

  choice(name, label, values, texts = (value) => value) {
    if (values.length < 2 && !this.filters[name]) return null;
    const select = h("select", { "aria-label": label, onchange: () => this.set(name, select.value) },
      h("option", { value: "" }, `all ${label}`),
      values.map((value) => h("option", { value, selected: this.filters[name] === value }, texts(value))));
    return select;
  }

  showFilters() {
    const { runs } = this.app.index, distinct = (name, of) => [...new Set(this.items(name).flatMap(of))];
    const counted = Object.keys(OUTCOMES).filter((outcome) => this.items("outcome").some((item) => item.outcome === outcome));
    if (document.activeElement !== this.search) this.search.value = this.filters.q ?? "";
    this.selects.replaceChildren(...[
      this.choice("run", "runs", distinct("run", (item) => String(item.run)), (run) => runs[run].name),
      this.choice("stage", "stages", distinct("stage", (item) => item.stage)),
      this.choice("split", "splits", distinct("split", (item) => item.split)),
      this.choice("outcome", "outcomes", counted, (outcome) => OUTCOMES[outcome]),
      this.choice("error", "errors", distinct("error", (item) => Object.keys(item.errors)).sort()),
      FILTERS.some((name) => this.filters[name]) && h("button", { onclick: () => this.clear() }, "clear"),
    ].filter(Boolean));
  }

  clear() {
    this.filters = {};
    this.show();
    this.app.changed();
  }

  show() {
    this.showFilters();
    const items = this.items(), { runs } = this.app.index;
    const columns = runs.flatMap((run, number) => run.stages.map((stage) => ({ run: number, stage })))
      .map((column) => ({ ...column, items: items.filter((item) => item.run === column.run && item.stage === column.stage) }))
      .filter((column) => column.items.length);
    const tasks = new Map();
    for (const item of items) {
      const key = `${item.env}\n${item.split}\n${item.seed}`;
      if (!tasks.has(key)) tasks.set(key, { ...item, items: [] });
      tasks.get(key).items.push(item);
    }
    const rows = [...tasks.values()].sort((a, b) => a.env.localeCompare(b.env) || a.split.localeCompare(b.split) || a.seed - b.seed);
    this.table.style.setProperty("--columns", columns.length);
    this.sum.textContent = this.summary(rows.length, items);
    this.lost.textContent = this.app.index.lost;
    const body = rows.slice(0, this.most).flatMap((row, i) => [
      row.split !== rows[i - 1]?.split || row.env !== rows[i - 1]?.env
        ? h("tr", { class: "group" }, h("th", { colspan: columns.length + 1, scope: "rowgroup" }, `${row.env}, ${row.split}`)) : null,
      this.row(row, columns)]);
    if (rows.length > this.most) {
      const more = h("button", { onclick: () => { this.most += 1000; this.show(); } }, `show ${Math.min(1000, rows.length - this.most)} more`);
      body.push(h("tr", {}, h("td", { colspan: columns.length + 1 }, more)));
    }
    this.table.replaceChildren(this.headings(columns, runs), h("tbody", {}, body.filter(Boolean)));
  }

  /** Outcomes are of trees and episodes, of which a task has one per stage or more. */
  summary(tasks, items) {
    if (!items.length) return "Nothing matches.";
    const of = items.length === tasks ? "" : ` in ${items.length} trees and episodes`;
    return `${plural(tasks, "task")}${of}: ${this.counts(items)}`;
  }

  counts(items) {
    return Object.entries(OUTCOMES).map(([outcome, text]) => [items.filter((item) => item.outcome === outcome).length, text])
      .filter(([n]) => n).map(([n, text]) => `${n} ${text}`).join(", ");
  }

  headings(columns, runs) {
    const head = columns.map(({ run, stage, items }) => {
      const won = items.filter((item) => item.outcome === "solved").length;
      return h("th", { scope: "col" }, runs.length > 1 && h("span", { class: "soft" }, runs[run].name),
        h("span", {}, ...stage.split("/").flatMap((part, i) => (i ? ["/", h("wbr"), part] : [part]))),
        h("span", { class: "rate", title: "solved, of all shown here" }, `${won} of ${items.length}`));
    });
    return h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "text" }, "task"), head));
  }

  row(row, columns) {
    const cells = columns.map(({ run, stage }) => {
      const own = row.items.filter((item) => item.run === run && item.stage === stage);
      return h("td", {}, own.map((item) => this.mark(item)));
    });
    return h("tr", {}, h("th", { scope: "row", class: "text" },
      h("span", { class: "seed", title: `seed ${row.seed}` }, String(row.seed % 1e9)), h("span", { class: "instruction", title: row.task }, row.task || "(no instruction)")), cells);
  }

  mark(item) {
    const errors = Object.entries(item.errors).map(([kind, n]) => `${n} ${kind}`);
    const about = [OUTCOMES[item.outcome], item.stop, item.kind === "trajectory" ? plural(item.steps, "step") :
      `${plural(item.nodes, "node")}, ${plural(item.rollouts, "rollout")}`, item.pairs ? plural(item.pairs, "pair") : "", ...errors];
    const title = [...new Set(about.filter(Boolean))].join(", ");
    return h("a", { class: `mark ${item.outcome}`, href: `#${this.app.link(item)}`, title, "aria-label": title },
      MARKS[item.outcome]);
  }

  /** Arrows go from mark to mark. */
  key(event) {
    const marks = [...this.table.querySelectorAll("a.mark")], at = marks.indexOf(document.activeElement);
    const cell = marks[at]?.closest("td"), line = cell?.parentElement;
    const inLine = (next) => next && [...next.querySelectorAll("a.mark")].sort((a, b) =>
      Math.abs(a.closest("td").cellIndex - cell.cellIndex) - Math.abs(b.closest("td").cellIndex - cell.cellIndex))[0];
    const along = (from, way) => {
      for (let next = from?.[way]; next; next = next[way]) if (next.querySelector("a.mark")) return inLine(next);
      return undefined;
    };
    const go = { ArrowRight: () => marks[at + 1], ArrowLeft: () => marks[at - 1],
      ArrowDown: () => along(line, "nextElementSibling"), ArrowUp: () => along(line, "previousElementSibling") }[event.key];
    if (!go) return;
    event.preventDefault();
    go()?.focus();
  }

  focusFirst() {
    this.table.querySelector("a.mark")?.focus();
  }
}
