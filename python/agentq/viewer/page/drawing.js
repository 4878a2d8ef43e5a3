// The tree on a canvas: d3's tidy layout from left to right, panned and zoomed. It draws; pane.js decides what.

const ROW = 34, COLUMN = 146, SHADES = 9;
const FAR = 0.15; // below this scale a node is a mark
const ENDS = { light: [[179, 88, 6], [158, 166, 176], [31, 95, 168]], dark: [[240, 160, 75], [120, 128, 138], [120, 184, 245]] };

const bin = (tree, mean) => Math.round(((mean - tree.low) / (tree.high - tree.low)) * (SHADES - 1));

/** Orange for the lowest Q, grey between, blue for the highest: told apart by people who confuse red and green. */
function shade(share, theme) {
  const [low, middle, high] = ENDS[theme];
  const [from, to, part] = share < 0.5 ? [low, middle, share * 2] : [middle, high, share * 2 - 1];
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * part)).join(",")})`;
}

class Drawing {
  constructor(pane) {
    this.pane = pane;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.context = this.canvas.getContext("2d");
    this.x = this.y = 0;
    this.scale = 1;
    this.widths = new Map();
    this.drawn = 0; // milliseconds of the last frame
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.repaint());
  }

  /** Places the nodes that are shown: {node, x, y} each, and {more, of} for those left out below one. */
  layout() {
    const { tree } = this.pane, view = this.pane.shown();
    const root = d3.hierarchy(0, (at) => {
      if (typeof at !== "number") return null;
      const { nodes, more } = view.below(at);
      return more ? [...nodes, { more, of: at }] : nodes;
    });
    d3.tree().nodeSize([ROW, COLUMN]).separation(() => 1)(root);
    this.places = root.descendants().map(({ data, x, y, parent }) => ({
      node: typeof data === "number" ? data : -1, more: data.more, of: data.of, x: y, y: x, up: parent,
    }));
    this.at = new Map(this.places.filter((place) => place.node >= 0).map((place) => [place.node, place]));
    this.bounds = this.places.reduce(
      (b, p) => ({ left: 0, right: Math.max(b.right, p.x), top: Math.min(b.top, p.y), bottom: Math.max(b.bottom, p.y) }),
      { left: 0, right: 0, top: 0, bottom: 0 },
    );
    this.paths(tree);
    this.repaint();
  }

  /** Everything of one colour is one path, so that a frame takes a few calls however many nodes there are. */
  paths(tree) {
    const { N, W } = tree.after(this.pane.rollout), bold = this.pane.bold();
    this.fills = Array.from({ length: SHADES }, () => new Path2D());
    [this.links, this.boldLinks, this.hollow, this.rings, this.crosses, this.dashed, this.mores, this.matches] =
      Array.from({ length: 8 }, () => new Path2D());
    for (const place of this.places) {
      const { x, y, node, up } = place;
      if (up) {
        const link = node >= 0 && bold.has(node) ? this.boldLinks : this.links;
        link.moveTo(up.y + 10, up.x);
        link.lineTo(up.y + 20, up.x);
        link.lineTo(up.y + 20, y);
        link.lineTo(x, y);
      }
      if (node < 0) {
        this.mores.roundRect(x - 6, y - 9, 44, 18, 9);
        continue;
      }
      const r = (place.r = N[node] ? Math.min(13, 3.5 + 1.7 * Math.sqrt(N[node])) : 3);
      const path = N[node] ? this.fills[bin(tree, W[node] / N[node])] : this.hollow;
      if (tree.terminal[node]) path.rect(x - r, y - r, 2 * r, 2 * r);
      else {
        path.moveTo(x + r, y);
        path.arc(x, y, r, 0, 7);
      }
      if (tree.success[node]) this.rings.rect(x - r - 3, y - r - 3, 2 * r + 6, 2 * r + 6);
      if (tree.text("error", node)) {
        for (const sign of [-1, 1]) {
          this.crosses.moveTo(x - 4, y - 4 * sign);
          this.crosses.lineTo(x + 4, y + 4 * sign);
        }
      }
      const restored = tree.text("restored", node);
      if (restored && restored !== "exact") {
        this.dashed.moveTo(x + r + 4, y);
        this.dashed.arc(x, y, r + 4, 0, 7);
      }
      if (this.pane.matches.has(node)) {
        this.matches.moveTo(x + r + 6, y);
        this.matches.arc(x, y, r + 6, 0, 7);
      }
    }
  }

  repaint() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const begun = performance.now();
      this.draw();
      this.drawn = performance.now() - begun;
    });
  }

  draw() {
    if (!this.places || !this.canvas.width) return;
    const { context: c, scale, pane } = this, theme = this.dark.matches ? "dark" : "light";
    const style = getComputedStyle(document.documentElement), ink = (name) => style.getPropertyValue(`--${name}`);
    const [text, soft, line, paper, bad, mark] = ["ink", "soft", "edge", "paper", "bad", "mark"].map(ink), ratio = devicePixelRatio;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * this.x, ratio * this.y);
    const stroke = (path, colour, width) => {
      c.strokeStyle = colour;
      c.lineWidth = width;
      c.stroke(path);
    };
    if (scale < FAR) return this.far(c, theme, line, ink("focus"));
    stroke(this.links, line, 1 / Math.min(1, scale * 1.2));
    stroke(this.boldLinks, text, 2.5);
    c.fillStyle = paper;
    c.fill(this.hollow);
    stroke(this.hollow, soft, 1.2);
    this.fills.forEach((path, i) => {
      c.fillStyle = shade(i / (SHADES - 1), theme);
      c.fill(path);
    });
    stroke(this.rings, shade(1, theme), 1.8);
    stroke(this.crosses, bad, 2);
    c.setLineDash([3, 3]);
    stroke(this.dashed, soft, 1.3);
    c.setLineDash([]);
    stroke(this.matches, mark, 3);
    c.fillStyle = paper;
    c.fill(this.mores);
    stroke(this.mores, line, 1);
    const chosen = this.at.get(pane.node);
    if (chosen) {
      c.beginPath();
      c.arc(chosen.x, chosen.y, chosen.r + 7, 0, 7);
      c.strokeStyle = ink("focus");
      c.lineWidth = 3;
      c.stroke();
    }
    if (scale > 0.42) this.labels(c, text, soft, paper);
  }

  /** From afar: a coloured mark per node and a line across its children, all of them rectangles on whole pixels. */
  far(c, theme, line, focus) {
    const { tree } = this.pane, { N, W } = tree.after(this.pane.rollout), ratio = devicePixelRatio, { scale } = this;
    const at = (x, y) => [Math.round(ratio * (this.x + x * scale)), Math.round(ratio * (this.y + y * scale))];
    const size = Math.ceil(ratio * Math.max(1.5, 8 * scale)), spans = new Map(), marks = this.fills.map(() => []);
    for (const { x, y, node, up } of this.places) {
      if (node >= 0 && N[node]) marks[bin(tree, W[node] / N[node])].push(at(x, y));
      if (up) spans.set(up, { top: Math.min(y, spans.get(up)?.top ?? y), bottom: y });
    }
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = line;
    for (const [up, { top, bottom }] of spans) {
      const [x, from] = at(up.y + 20, top);
      c.fillRect(x, from, 1, Math.max(1, at(0, bottom)[1] - from));
    }
    marks.forEach((places, i) => {
      c.fillStyle = shade(i / (SHADES - 1), theme);
      for (const [x, y] of places) c.fillRect(x - (size >> 1), y - (size >> 1), size, size);
    });
    const chosen = this.at.get(this.pane.node);
    if (!chosen) return;
    const [x, y] = at(chosen.x, chosen.y);
    c.strokeStyle = focus;
    c.lineWidth = 2 * ratio;
    c.strokeRect(x - 6 * ratio, y - 6 * ratio, 12 * ratio, 12 * ratio);
  }

  /** Words beside the nodes in sight: the action above its line; N and Q below it. */
  labels(c, text, soft, paper) {
    const { tree, rollout } = this.pane, { N, W } = tree.after(rollout), { scale } = this;
    const left = -this.x / scale - COLUMN, right = (this.width - this.x) / scale + COLUMN;
    const top = -this.y / scale - ROW, bottom = (this.height - this.y) / scale + ROW;
    c.textBaseline = "alphabetic";
    for (const { x, y, node, more, r } of this.places) {
      if (x < left || x > right || y < top || y > bottom) continue;
      if (node < 0) {
        c.textAlign = "center";
        c.font = "11px system-ui, sans-serif";
        c.fillStyle = soft;
        c.fillText(`+${more}`, x + 16, y + 4);
        continue;
      }
      if (node === 0) continue;
      c.textAlign = "left";
      c.font = "12px ui-monospace, 'DejaVu Sans Mono', monospace";
      c.fillStyle = N[node] ? text : soft;
      const from = x - COLUMN + 26;
      c.fillText(this.cut(c, tree.text("action", node), COLUMN - 34 - r), from, y - 4);
      if (scale < 0.6 || !N[node]) continue;
      c.font = "10.5px system-ui, sans-serif";
      c.fillStyle = soft;
      c.fillText(`N ${N[node]}   Q ${figure(W[node] / N[node])}`, from, y + 12);
    }
  }

  /** The text, cut to a width. A letter of another script may be wider, and be two units of the text. */
  cut(c, text, width) {
    let most = Math.floor(width / (this.letter ??= c.measureText("m").width)), letters = [...text.slice(0, 2 * most + 2)];
    const shown = () => (letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join(""));
    if (/[^\0-\x7f]/.test(text)) while (most > 1 && c.measureText(shown()).width > width) most--;
    return shown();
  }

  resize() {
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * devicePixelRatio);
    this.canvas.height = Math.round(this.height * devicePixelRatio);
    if (this.width && !this.placed) this.fit(0.8);
    else this.reveal(this.pane.node);
    this.repaint();
  }

  /** Shows the whole tree, or as much of it from the root on as a scale of at least `least` allows. */
  fit(least = 0.02) {
    if (!this.places || !this.width) return;
    const { right, top, bottom } = this.bounds, room = 40;
    const whole = Math.min((this.width - 2 * room) / (right + 1), (this.height - 2 * room) / (bottom - top + 1));
    this.scale = Math.min(1, Math.max(whole, least));
    this.x = room;
    const tall = (bottom - top) * this.scale;
    this.y = tall > this.height - 2 * room ? this.height / 2 : (this.height - tall) / 2 - top * this.scale;
    this.placed = true;
    this.reveal(this.pane.node);
    this.repaint();
  }

  /** Pans so that a node is in sight. */
  reveal(node) {
    const place = this.at.get(node);
    if (!place || !this.placed) return;
    const x = place.x * this.scale + this.x, y = place.y * this.scale + this.y, near = 60;
    const into = (at, low, high) => (at < low ? low - at : at > high ? high - at : 0);
    this.x += into(x, Math.min(node ? near + COLUMN * this.scale : 30, this.width / 2), this.width - near);
    this.y += into(y, near, this.height - near);
    this.repaint();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const scale = Math.min(3, Math.max(0.02, this.scale * factor));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.repaint();
  }

  /** The place nearest to a point of the canvas, if it is on it or on its label. */
  hit(x, y) {
    const at = { x: (x - this.x) / this.scale, y: (y - this.y) / this.scale };
    return this.places.find(
      (place) =>
        Math.abs(place.y - at.y) < ROW / 2 &&
        at.x < place.x + (place.node < 0 ? 40 : 16) &&
        at.x > place.x - (place.node > 0 ? COLUMN - 26 : 16),
    );
  }

  listen() {
    let { canvas } = this, held = null;
    canvas.onpointerdown = (event) => {
      held = { x: event.clientX, y: event.clientY, moved: false };
      if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = (event) => {
      if (!held) {
        canvas.style.cursor = this.hit(event.offsetX, event.offsetY) ? "pointer" : "grab";
        return;
      }
      const dx = event.clientX - held.x, dy = event.clientY - held.y;
      if (!held.moved && Math.hypot(dx, dy) < 4) return;
      held = { x: event.clientX, y: event.clientY, moved: true };
      this.x += dx;
      this.y += dy;
      this.repaint();
    };
    canvas.onpointerup = (event) => {
      const place = held && !held.moved && this.hit(event.offsetX, event.offsetY);
      held = null;
      if (place) place.node < 0 ? this.pane.widen(place.of) : this.pane.choose(place.node);
    };
    canvas.onpointercancel = () => (held = null);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) return this.zoom(Math.exp(-event.deltaY / 200), event.offsetX, event.offsetY);
      this.x -= event.deltaX;
      this.y -= event.deltaY;
      this.repaint();
    }, { passive: false });
  }
}
