// What is known about one node: the action, its siblings, the page, the pairs and the tokens.

const VIEWS = [["before", "page before"], ["after", "page after"], ["difference", "difference"]];
const COLUMNS = ["N", "W", "Q", "critic", "blend", "mixed", "U", "P", "log p"];
const MEANINGS = {
  N: "rollouts through the action", W: "sum of their returns", Q: "mean return, W / N",
  critic: "value that the critic gave before any rollout",
  blend: "what pairs compare: alpha Q + (1 - alpha) critic, or Q if the critic gave all of them one value",
  mixed: "alpha Q + (1 - alpha) critic with the alpha of the search: to this the selection rule adds U",
  U: "what the selection rule adds to Q, or to the mixed value; the largest sum is selected next",
  P: "prior: the policy's probability among these actions", "log p": "log-probability under the policy, in nats",
};

class Details {
  constructor(pane) {
    this.pane = pane;
    this.element = h("section", { class: "details", "aria-label": "the chosen node" });
    this.view = "before";
    this.tokens = false;
  }

  /** Shows the chosen node, from its top or from where it was scrolled to. The focus stays in the same part. */
  show(top = 0) {
    const { tree, node } = this.pane, held = this.element.contains(document.activeElement) ? document.activeElement : null;
    this.element.replaceChildren(
      this.action(tree, node), this.siblings(tree, node), this.page(tree, node),
      ...this.pairs(tree, node), node ? this.tokenPart(tree, node) : this.information(tree));
    if (held) this.element.querySelector(`${held.closest(".choices") ? ".choices" : "table"} [aria-pressed=true]`)?.focus({ preventScroll: true });
    this.element.scrollTop = top;
  }

  action(tree, node) {
    if (!node) {
      return h("div", { class: "action" }, h("h2", {}, "First page"), ...this.faults(tree, node));
    }
    const said = ["plan", "thought", "explanation"].map((name) => [name, tree.text(name, node)]);
    return h("div", { class: "action" },
      h("h2", {}, h("code", {}, tree.text("action", node))),
      ...this.faults(tree, node),
      ...said.filter(([, text]) => text).map(([name, text]) => h("p", {}, h("span", { class: "name" }, name), " ", text)));
  }

  faults(tree, node) {
    const found = [], error = tree.text("error", node), restored = tree.text("restored", node);
    const badge = (kind, text) => found.push(h("span", { class: `badge ${kind}` }, text));
    if (tree.success[node]) badge("solved", tree.solved);
    else if (tree.terminal[node]) badge("", "end of the episode");
    if (error) badge("broken", tree.broken[node] ? `${error}: the world failed` : error);
    if (tree.reward[node]) badge("", `reward ${figure(tree.reward[node])}`);
    if (tree.text("status", node) && tree.text("status", node) !== "CONTINUE") badge("", tree.text("status", node));
    if (restored) badge("", `restored: ${restored}`);
    if (tree.text("mended", node)) badge("", `mended: ${tree.text("mended", node)}`);
    const message = tree.text("message", node);
    return [found.length ? h("p", { class: "badges" }, found) : null, message ? h("p", { class: "bad" }, message) : null]
      .filter(Boolean);
  }

  information(tree) {
    const rows = Object.entries(tree.info).map(([name, value]) => {
      const text = Number.isInteger(value) || typeof value !== "number" ? String(value) : value.toFixed(1);
      return [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, text)];
    });
    return h("div", {}, h("h3", {}, tree.row.kind === "trajectory" ? "Episode" : "Search"), h("dl", {}, rows.flat()));
  }

  siblings(tree, node) {
    const up = node ? tree.parent[node] : 0, { N, W } = tree.after(this.pane.rollout), all = tree.children[up];
    if (!all.length || this.pane.episode) return "";
    const title = node ? "Actions proposed at this page" : "Actions proposed at the first page";
    const values = (child) => [
      N[child], figure(N[child] ? W[child] : null), figure(N[child] ? W[child] / N[child] : null),
      figure(tree.critic[child]), tree.blend && N[child] ? figure(tree.blend[child]) : "",
      figure(tree.mixed(child, N, W)), this.finite(tree.bonus(child, N)), figure(tree.prior[child]), figure(tree.logp[child])];
    const kept = COLUMNS.map((_, i) => all.some((child) => values(child)[i] !== ""));
    const head = COLUMNS.map((name, i) => kept[i] && h("th", { scope: "col", title: MEANINGS[name] }, name));
    const rows = all.map((child) =>
      h("tr", { class: child === node ? "chosen" : "", onclick: () => this.pane.choose(child) },
        h("td", { class: "text" },
          h("button", { class: "plain", "aria-pressed": String(child === node) }, tree.text("action", child)),
          this.pane.notes(child) && h("span", { class: "note" }, ` ${this.pane.notes(child)}`)),
        ...values(child).map((value, i) => (kept[i] ? h("td", {}, String(value)) : null))));
    return h("div", {}, h("h3", {}, title),
      h("div", { class: "wide" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", { class: "text", scope: "col" }, "action"), ...head.filter(Boolean))),
        h("tbody", {}, rows))));
  }

  finite(value) {
    return value === Infinity ? "∞" : figure(value);
  }

  page(tree, node) {
    const up = tree.parent[node], before = tree.page(up), after = tree.page(node);
    const views = VIEWS.filter(([name]) => (name === "before" ? before : name === "after" ? after : before && after));
    if (!views.length) return h("div", {}, h("h3", {}, "Page"), h("p", { class: "soft" }, "There is no page."));
    const view = views.some(([name]) => name === this.view) ? this.view : views[0][0];
    const shown = view === "before" ? before : after, buttons = views.map(([name, text]) =>
      h("button", { "aria-pressed": String(name === view), onclick: () => this.choose(name) }, text));
    return h("div", { class: "page" },
      views.length > 1 ? h("div", { class: "choices", role: "group", "aria-label": "which page" }, buttons) : h("h3", {}, "Page"),
      h("p", { class: "url" }, tree.texts[shown.url]),
      this.picture(shown, view === "before" ? tree.element[node] : null),
      view === "difference" ? this.changes(tree.lines(before), tree.lines(after)) : this.lines(tree, shown, view, node));
  }

  choose(view) {
    this.view = view;
    this.show(this.element.scrollTop);
    this.pane.changed();
  }

  /** The page's text; the element that the action names is marked. */
  lines(tree, page, view, node) {
    const element = view === "before" ? tree.element[node] : null;
    const mark = (line) => element !== null && line.includes(`[${element}]`);
    return h("div", { class: "lines" }, tree.lines(page).map((line) => h("div", { class: mark(line) ? "here" : "" }, line || " ")));
  }

  changes(before, after) {
    const found = difference(before, after), kinds = { "-": "gone", "+": "new", " ": "" };
    if (found.every(([kind]) => kind === " ")) return h("p", { class: "soft" }, "The page did not change.");
    return h("div", { class: "lines" }, found.map(([kind, line]) => h("div", { class: kinds[kind] }, `${kind} ${line}`)));
  }

  /** The screenshot, if the run kept one, with the element of the action marked. */
  picture(page, element) {
    if (!page.shot) return null;
    const image = h("img", { alt: "screenshot of the page" }), frame = h("div", { class: "shot" }, image);
    const show = (bytes) => (image.src = URL.createObjectURL(new Blob([bytes], { type: "image/webp" })));
    const instead = (text) => frame.replaceWith(h("p", { class: "soft" }, text));
    block(page.shot).then(show, () => instead("This screenshot is not in the file. agentq view --live shows it."));
    image.onerror = () => instead("This screenshot is damaged.");
    const box = element !== null && page.boxes[element];
    image.onload = () => {
      URL.revokeObjectURL(image.src);
      if (!box) return;
      const mark = h("div", { class: "box" }), [x, y, width, height] = box;
      const share = (value, whole) => `${(100 * value) / whole}%`;
      Object.assign(mark.style, {
        left: share(x, page.size[0]), top: share(y, page.size[1]),
        width: share(width, page.size[0]), height: share(height, page.size[1]),
      });
      frame.append(mark);
    };
    return frame;
  }

  /** The pairs of this node's action and its siblings. */
  pairs(tree, node) {
    const all = tree.pairs.filter(([chosen, rejected]) =>
      node ? chosen === node || rejected === node : tree.parent[chosen] === 0);
    if (!tree.blend) return [];
    const name = (at) => h("button", { class: "plain", onclick: () => this.pane.choose(at) }, tree.text("action", at));
    const rows = all.map(([chosen, rejected, gap, dropped]) =>
      h("tr", { class: dropped ? "dropped" : "" },
        h("td", { class: "text" }, name(chosen), h("span", { class: "soft" }, " over "), name(rejected)),
        h("td", {}, figure(gap)), h("td", { class: "text" }, dropped ? `dropped: ${dropped}` : "kept")));
    const none = h("p", { class: "soft" }, "None: no two of these actions were tried.");
    return [h("div", {}, h("h3", {}, "Preference pairs"), !all.length ? none : h("div", { class: "wide" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { class: "text" }, "pair"), h("th", {}, "gap"), h("th", { class: "text" }, "training"))),
      h("tbody", {}, rows))))];
  }

  tokenPart(tree, node) {
    const name = `tokens${tree.row.id}`, place = h("div", {}), count = tree.tokens[node];
    const fill = async () => place.replaceChildren(...tokensOf(await (tree.sampled ??= read(name)), node));
    const more = h("details", { open: this.tokens, ontoggle: () => {
      this.tokens = more.open;
      if (more.open && !place.firstChild) fill();
    } }, h("summary", {}, count ? plural(count, "token") : "Sampled text"), place);
    if (this.tokens) fill();
    return more;
  }
}

/** Each token, darker the less likely it was; its number and log-probability in its title. */
function tokensOf(sampled, node) {
  const at = sampled.node.indexOf(node);
  if (at < 0) return [];
  const { words } = sampled, ids = sampled.ids[at], logps = sampled.logps[at];
  const spans = ids.map((id, i) => {
    const logp = logps[i], text = words[id] || `${id} `;
    const span = h("span", { class: "token", title: `${id}: ${logp === null ? "unknown" : `${logp} nats`}` }, text);
    span.style.setProperty("--doubt", logp === null ? 0 : Math.min(0.75, -logp / 4));
    return span;
  });
  const about = [`ended by ${sampled.stop[at]}`, `temperature ${sampled.temperature[at]}`, `policy version ${sampled.version[at]}`];
  return [h("div", { class: "lines tokens" }, spans.length ? spans : sampled.text[at]), h("p", { class: "soft" }, about.join(", "))];
}
