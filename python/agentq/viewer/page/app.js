// What is shown is in the address: a link to a node, a moment of the search or a comparison can be kept and sent.

class App {
  async start() {
    this.index = await read("index");
    $("runs").textContent = this.index.runs.map((run) => run.name).join(", ");
    this.tasks = new Tasks(this);
    this.panes = [];
    this.active = null;
    onhashchange = () => location.hash.slice(1) !== this.address && this.route();
    document.addEventListener("keydown", (event) => this.key(event));
    $("help").onclick = () => $("keys").showModal();
    $("close").onclick = () => $("keys").close();
    await this.route();
    if (this.index.live) setInterval(() => this.renew(), 2000);
    document.documentElement.dataset.ready = "1";
  }

  link(item) {
    return this.filtered(new URLSearchParams({ at: this.name(item) })).toString();
  }

  filtered(address) {
    for (const name of FILTERS) if (this.tasks.filters[name]) address.set(name, this.tasks.filters[name]);
    return address;
  }

  /** An item in the address. */
  name(item) {
    return [item.run, item.stage, item.key].join(":");
  }

  find(name) {
    return this.index.items.find((item) => this.name(item) === name);
  }

  /** Shows what the address says. */
  async route() {
    this.address = location.hash.slice(1);
    const asked = new URLSearchParams(this.address), items = ["at", "with"].map((name) => this.find(asked.get(name)));
    this.tasks.filters = Object.fromEntries(FILTERS.filter((name) => asked.get(name)).map((name) => [name, asked.get(name)]));
    const open = items.filter((item, i) => item && (i === 0 || items[0]));
    $("tasks").hidden = open.length > 0;
    $("panes").hidden = !open.length;
    if (!open.length) {
      for (const pane of this.panes) pane.pause();
      this.active = null;
      this.tasks.show();
      document.title = `${$("runs").textContent} - agentq view`;
      return;
    }
    const number = (name) => (asked.get(name) === null ? null : Number(asked.get(name)));
    $("panes").classList.toggle("two", open.length > 1);
    while (this.panes.length < open.length) this.panes.push(new Pane(this));
    $("panes").replaceChildren(...this.panes.slice(0, open.length).map((pane) => pane.element));
    document.title = `${open[0].task.slice(0, 60)} - agentq view`;
    try {
      await Promise.all(open.map((item, i) => {
        const more = i ? "2" : "", pane = this.panes[i];
        const wanted = { node: number(`node${more}`) ?? 0, rollout: number(`t${more}`), view: asked.get("page") ?? "before" };
        return pane.open(item, wanted);
      }));
    } catch (error) { // it was damaged after it was listed, or the server has stopped
      $("panes").replaceChildren(h("p", { role: "status" }, error.message));
      return;
    }
    this.focus(this.panes[0]);
    if (!$("panes").contains(document.activeElement)) this.panes[0].outline.show(true);
  }

  /** Shows another address at once, so that the next press goes on from there. */
  go(address) {
    location.hash = address;
    return this.route();
  }

  /** Writes what is shown into the address. */
  changed() {
    const address = new URLSearchParams();
    if (!$("panes").hidden) {
      const put = (name, value, usual) => value !== usual && address.set(name, value);
      this.shown().forEach((pane, i) => {
        const more = i ? "2" : "";
        address.set(i ? "with" : "at", this.name(pane.row));
        put(`node${more}`, pane.node, 0);
        put(`t${more}`, pane.rollout, null);
        if (!i) put("page", pane.details.view, "before");
      });
    }
    this.address = this.filtered(address).toString();
    history.replaceState(null, "", `#${this.address}`);
  }

  shown() {
    return this.panes.filter((pane) => pane.row && pane.element.isConnected);
  }

  focus(pane) {
    this.active = pane;
    for (const each of this.panes) each.element.classList.toggle("active", each === pane && this.shown().length > 1);
  }

  /** A choice of another tree or episode of the same task to see beside the first one. */
  comparing(pane) {
    if (pane !== this.panes[0]) return h("button", { onclick: () => this.compare(null) }, "close");
    const { row } = pane, others = this.index.items.filter((item) => item !== row && item.env === row.env && item.seed === row.seed);
    if (!others.length) return null;
    const beside = new URLSearchParams(this.address).get("with");
    const label = (item) => [this.index.runs.length > 1 ? this.index.runs[item.run].name : "", item.stage, item.kind === "trajectory" ? item.key : ""];
    const select = h("select", { "aria-label": "compare with", onchange: () => this.compare(others[select.selectedIndex - 1] ?? null) },
      h("option", {}, "compare with …"), others.map((item) => h("option", { selected: this.name(item) === beside },
        `${MARKS[item.outcome]} ${label(item).filter(Boolean).join(" ")}`)));
    return select;
  }

  compare(item) {
    const address = new URLSearchParams(this.address);
    for (const name of ["with", "node2", "t2"]) address.delete(name);
    if (item) address.set("with", this.name(item));
    this.go(address.toString());
  }

  /** The tree or episode before or after the open one, among those that the filters let through. */
  turn(by) {
    const items = this.tasks.items(), at = items.findIndex((item) => this.name(item) === this.name(this.active.asked));
    const next = items[at + by];
    if (next) this.go(this.link(next));
  }

  close() {
    const { row } = this.panes[0];
    this.go(this.filtered(new URLSearchParams()).toString()).then(() => {
      const mark = [...document.querySelectorAll("a.mark")].find((each) => each.hash === `#${this.link(row)}`);
      mark ? mark.focus() : this.tasks.focusFirst();
    });
  }

  key(event) {
    const typing = event.target.closest?.("input:not([type=range]):not([type=checkbox]), select, dialog");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && !$("keys").open) {
      if (typing) event.target.blur();
      else if (this.active) this.close();
      return;
    }
    if (typing) return;
    if (event.key === "?") return $("keys").showModal();
    if (!this.active) {
      if (event.key === "/") this.tasks.search.focus();
      else if (event.key === "ArrowDown" && !document.activeElement.closest("table")) this.tasks.focusFirst();
      else return;
      return event.preventDefault();
    }
    if (event.key === " " && event.target.closest("button, summary, input")) return;
    if (event.key.startsWith("Arrow") && event.target.closest("input")) return;
    if (event.key === "n" || event.key === "p") this.turn(event.key === "n" ? 1 : -1);
    else if (!this.active.key(event.key)) return;
    event.preventDefault();
  }

  /** Of a run that goes on: what is new. */
  async renew() {
    let index;
    try {
      index = await read("index");
      $("state").textContent = "live";
    } catch (error) {
      $("state").textContent = error.message;
      return;
    }
    if (index.version === this.index.version) return;
    this.index = index;
    if (!this.active) return this.tasks.show();
    for (const pane of this.shown()) {
      const row = this.find(this.name(pane.row));
      if (row && row.change !== pane.row.change && pane.asked === pane.row) pane.grow(row); // not if another is being read
    }
  }
}

new App().start().catch((error) => {
  $("tasks").hidden = false;
  const old = self.DecompressionStream ? "" : ". It needs a browser with DecompressionStream, of 2023 or later.";
  $("tasks").textContent = `This page could not be shown: ${error.message}${old}`;
});
