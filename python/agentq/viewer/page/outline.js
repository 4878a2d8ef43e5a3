// The tree as a list of its open nodes: what a keyboard and a screen reader use beside the drawing.

class Outline {
  constructor(pane) {
    this.pane = pane;
    this.open = new Set([0]);
    this.list = h("div", { class: "outline", role: "tree", "aria-label": "nodes of the tree" });
    this.list.onkeydown = (event) => this.key(event);
  }

  /** Opens the way to the chosen node and shows the list again. */
  show(keepFocus = this.list.contains(document.activeElement)) {
    const { tree, node } = this.pane;
    for (const at of tree.path(node).slice(0, -1)) this.open.add(at);
    this.rows = [];
    this.add(0, 1, 1, 1);
    this.list.replaceChildren(...this.rows.map((row) => row.element));
    const chosen = this.rows.find((row) => row.node === node) ?? this.rows[0];
    chosen.element.tabIndex = 0;
    if (keepFocus) chosen.element.focus();
    else this.scroll(chosen.element);
  }

  scroll(element) {
    const { list } = this, top = element.offsetTop - list.offsetTop;
    if (top < list.scrollTop || top > list.scrollTop + list.clientHeight - 40) list.scrollTop = top - list.clientHeight / 2;
  }

  add(node, level, place, size) {
    const { tree, rollout } = this.pane, { nodes, more } = this.pane.shown().below(node), { N, W } = tree.after(rollout);
    const open = nodes.length > 0 && this.open.has(node), notes = this.pane.notes(node);
    const element = h("div", {
      role: "treeitem", tabindex: -1, "aria-level": level, "aria-posinset": place, "aria-setsize": size,
      "aria-expanded": nodes.length ? String(open) : null, "aria-selected": String(node === this.pane.node),
      class: [N[node] ? "" : "untried", this.pane.bold().has(node) ? "bold" : ""].join(" "),
      onclick: () => this.pane.choose(node),
    },
      this.pane.episode ? h("span", { class: "figures" }, String(level - 1)) :
        h("span", { class: "fold", "aria-hidden": "true", onclick: (event) => this.fold(event, node) },
          nodes.length ? (open ? "▾" : "▸") : ""),
      h("span", { class: "what" }, node ? tree.text("action", node) : "first page"),
      notes && h("span", { class: "note" }, notes),
      !this.pane.episode && h("span", { class: "figures" }, N[node] ? `${N[node]} · ${figure(W[node] / N[node])}` : "–"));
    element.style.setProperty("--level", this.pane.episode ? 0 : Math.min(level - 1, 12));
    element.setAttribute("aria-label", this.spoken(node, N, W, notes));
    this.rows.push({ node, element });
    if (!open) return;
    nodes.forEach((child, i) => this.add(child, level + 1, i + 1, nodes.length));
    if (more) {
      const rest = h("div", { class: "rest", onclick: () => this.pane.widen(node) }, `+${more} more`);
      rest.style.setProperty("--level", Math.min(level, 12));
      this.rows.push({ node: -1, element: rest });
    }
  }

  spoken(node, N, W, notes) {
    const what = node ? this.pane.tree.text("action", node) : "first page";
    const figures = N[node] ? `${plural(N[node], "visit")}, mean return ${figure(W[node] / N[node])}` : "not tried";
    return [what, figures, notes].filter(Boolean).join(", ");
  }

  fold(event, node) {
    event.stopPropagation();
    this.toggle(node, !this.open.has(node));
  }

  toggle(node, open) {
    open ? this.open.add(node) : this.open.delete(node);
    if (!open && this.pane.tree.path(this.pane.node).includes(node)) this.pane.choose(node);
    this.open[open ? "add" : "delete"](node);
    this.show();
  }

  /** The keys of a tree view, as ARIA's authoring practices have them. */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const { node, tree } = this.pane, nodes = this.rows.map((row) => row.node).filter((at) => at >= 0);
    const at = nodes.indexOf(node), below = this.pane.shown().below(node).nodes, isOpen = this.open.has(node);
    const go = {
      ArrowDown: () => nodes[at + 1],
      ArrowUp: () => nodes[at - 1],
      Home: () => 0,
      End: () => nodes.at(-1),
      ArrowRight: () => (below.length && !isOpen ? this.toggle(node, true) : below[0]),
      ArrowLeft: () => (below.length && isOpen ? this.toggle(node, false) : tree.parent[node]),
    }[event.key];
    if (!go) return;
    event.preventDefault();
    event.stopPropagation();
    const next = go();
    if (next >= 0) this.pane.choose(next);
  }
}
