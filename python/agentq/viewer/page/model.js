// A tree as the page computes with it: who is below whom, N and W after any rollout, what a choice was worth.

const MARKS = { solved: "✓", failed: "–", broken: "!", growing: "…" };

class Tree {
  constructor(data, row, run) {
    Object.assign(this, data);
    this.row = row;
    this.run = run;
    this.size = data.parent.length;
    this.children = data.parent.map(() => []);
    this.depth = new Array(this.size).fill(0);
    this.total = data.reward.slice(); // sum of rewards from the first page
    for (let node = 1; node < this.size; node++) {
      const up = data.parent[node];
      this.children[up].push(node);
      this.depth[node] = this.depth[up] + 1;
      this.total[node] += this.total[up];
    }
    this.rollouts = data.ends ? data.ends.length : 0;
    this.solved = data.judged ? "✓ success, says the judge" : "✓ solved";
    this.counts = new Map();
    this.low = 0; // the range of Q that colours span
    this.high = 1;
    for (let node = 0; node < this.size; node++) {
      const mean = data.N[node] ? data.W[node] / data.N[node] : 0;
      this.low = Math.min(this.low, mean);
      this.high = Math.max(this.high, mean);
    }
  }

  text(column, node) {
    return this.texts[this[column][node]];
  }

  path(node) {
    const nodes = [];
    for (let at = node; at >= 0; at = this.parent[at]) nodes.push(at);
    return nodes.reverse();
  }

  /** N and W of every node after the first `t` rollouts; of the whole search without `t`. */
  after(t) {
    if (t === null || !this.ends || t >= this.rollouts) return { N: this.N, W: this.W };
    if (this.counts.has(t)) return this.counts.get(t);
    const N = new Array(this.size).fill(0), W = new Array(this.size).fill(0);
    for (const end of this.ends.slice(0, t)) {
      for (const node of this.path(end)) {
        N[node] += 1;
        W[node] += this.total[end];
      }
    }
    if (this.counts.size > 64) this.counts.clear();
    this.counts.set(t, { N, W });
    return this.counts.get(t);
  }

  /** The Q of an edge that the selection rule compares; null where it is W / N. Formula and source: csrc/score.h. */
  mixed(node, N, W) {
    const { alpha } = this.run;
    return alpha < 1 ? (N[node] ? (alpha * W[node]) / N[node] : 0) + (1 - alpha) * this.critic[node] : null;
  }

  /** What the selection rule adds to Q of an edge; null for rules that draw. Formulas and sources: csrc/score.h. */
  bonus(node, N) {
    const up = this.parent[node], c = this.run.c_exp;
    if (up < 0) return null;
    const all = this.children[up].reduce((sum, child) => sum + N[child], 0), n = N[node];
    if (this.run.selection === "ucb1") return (c * Math.sqrt(Math.log(Math.max(1, all)))) / Math.sqrt(1 + n);
    if (this.run.selection === "uct") return n ? c * Math.sqrt(Math.log(Math.max(1, all)) / n) : Infinity;
    if (this.run.selection === "puct" && this.prior[node] !== null)
      return (c * this.prior[node] * Math.sqrt(Math.max(1, all))) / (1 + n);
    return null;
  }

  tried(node, N) {
    return node === 0 || N[node] > 0 || (this.text("error", node) !== "" && N === this.N);
  }

  /** The page at a node; null where its action was not taken. */
  page(node) {
    return node < 0 || this.shows[node] < 0 ? null : this.pages[this.shows[node]];
  }

  lines(page) {
    return page ? page.lines.map((line) => this.texts[line]) : [];
  }
}

/** The lines of two texts as [kind, line]: " " in both, "-" only in the first, "+" only in the second. */
function difference(before, after) {
  let start = 0, end = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  const most = Math.min(before.length, after.length) - start;
  while (end < most && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const a = before.slice(start, before.length - end), b = after.slice(start, after.length - end);
  const same = (line) => [" ", line];
  return [...before.slice(0, start).map(same), ...changed(a, b), ...before.slice(before.length - end).map(same)];
}

/** By the longest common subsequence; texts with more than 4 million pairs of lines are taken as wholly changed. */
function changed(a, b) {
  if (a.length * b.length > 4e6 || !a.length || !b.length)
    return [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  const width = b.length + 1, longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i * width + j] =
        a[i] === b[j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  const found = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push([" ", a[i]]);
      i++, j++;
    } else if (i < a.length && (j === b.length || longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      found.push(["-", a[i++]]);
    } else found.push(["+", b[j++]]);
  }
  return found;
}
