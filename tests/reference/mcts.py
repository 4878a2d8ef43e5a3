"""A slow, obvious twin of agentq._core.Forest: one Python object a node, nothing cached, no checks of arguments.

Written from the definitions, not from the C++: what can be derived (depth, exhaustion, what is in flight) is derived.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations

from tests.reference.sampled import TINY, Draws, considered_visits, draw_mean, improved_policy, sigma


@dataclass(eq=False)
class Node:
    """One history."""

    parent: Node | None = None
    critic_value: float = 0.0
    logp: float = 0.0
    prior: float = 1.0
    children: list[Node] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)  # of every rollout told through the node, discounted
    state: int | None = None
    states: dict[int, list[Node]] = field(default_factory=dict)  # of a root: the nodes that are or were each state
    own: list[float] = field(default_factory=list)  # of every rollout told at the very node
    successes: int = 0
    waiting: int = 0  # rollouts pending at the very node
    terminal: bool = False
    told_terminal: bool = False

    def path(self) -> list[Node]:
        """The node, its parent, ... the root."""
        return [self] if self.parent is None else [self, *self.parent.path()]

    def below(self) -> list[Node]:
        """The node and all below it, parents first, the children of a node together."""
        nodes = [self]
        for node in nodes:
            nodes += node.children
        return nodes

    widens: bool = False  # a new child is always to be had
    tree: int = 0
    reroots: int = 0  # of a root: how often another node took this place
    base: int = 0  # of a root: its N(h) when it became the root

    def exhausted(self) -> bool:
        """Terminal and told, or all children are."""
        if self.told_terminal or self.widens:
            return self.told_terminal
        return bool(self.children) and all(child.exhausted() for child in self.children)

    def in_flight(self) -> int:
        return self.waiting + sum(child.in_flight() for child in self.children)

    def started(self) -> int:
        return len(self.returns) + self.in_flight()

    def value_sum(self) -> float:
        """W, added up in the order told."""
        total = 0.0
        for value in self.returns:
            total += value
        return total


@dataclass
class ReferenceForest:
    """The rules of agentq._core.Forest; trees are roots, tickets are one-element lists that hold the node."""

    selection: str = "ucb1"
    c_exp: float = 1.0
    unvisited: str = "formula"
    exhaust: bool = True
    backup: str = "mean"
    discount: float = 1.0
    alpha: float = 1.0
    success_at: float | None = None
    transpositions: bool = False
    seed: int = 0
    num_simulations: int = 0
    max_considered: int = 16
    gumbel_scale: float = 1.0
    ids: dict[Node, int] = field(default_factory=dict)  # best-first search takes the lower of equals

    def value(self, child: Node) -> float:
        """What selection knows of an edge besides its bonus."""
        if self.transpositions and child.state is not None:
            n, total = self.state_totals(child.path()[-1], child.state)
        else:
            n, total = child.started(), max(child.returns, default=0.0) if self.backup == "max" else child.value_sum()
        q = total if self.backup == "max" else total * (1 / max(1, n))
        return q if self.alpha == 1.0 else self.alpha * q + (1 - self.alpha) * child.critic_value

    def set_state(self, node: Node, key: int) -> None:
        if node.state is None:
            node.state = key
            node.path()[-1].states.setdefault(key, []).append(node)

    def state_totals(self, root: Node, key: int) -> tuple[int, float]:
        """Rollouts started and W of a state, over all nodes that ever were it."""
        alive = set(root.below())
        returns = [r for node in root.states[key] for r in node.returns]
        flying = sum(node.in_flight() for node in root.states[key] if node in alive)
        return len(returns) + flying, max(returns, default=0.0) if self.backup == "max" else sum(returns)

    def merge(self, root: Node, other: Node) -> dict[Node, Node]:
        """Lays the tree `other` over `root`; where its nodes are now."""
        now = {other: root}
        for key, nodes in other.states.items():
            root.states.setdefault(key, []).extend(nodes)
        pairs = [(root, other)]
        for a, b in pairs:
            if b.state is not None and b.state == a.state:
                a.path()[-1].states[b.state].remove(b)  # its returns are a's from now on
            elif a.state is None and b.state is not None:
                a.state = b.state
                root.states[b.state][root.states[b.state].index(b)] = a
            a.returns, a.own, a.successes = a.returns + b.returns, a.own + b.own, a.successes + b.successes
            a.terminal, a.told_terminal = a.terminal or b.terminal, a.told_terminal or b.told_terminal
            free = [child for child in a.children if child.state is not None]
            for child in b.children:
                same = next((c for c in free if c.state == child.state), None)
                if same is not None:
                    free.remove(same)
                    now[child] = same
                    pairs.append((same, child))
                    continue
                child.parent = a
                a.children.append(child)
                now |= {node: node for node in child.below()}
            if a.children:
                a.terminal = a.told_terminal = False
        return now

    def mean(self, node: Node) -> float:
        if self.backup == "max":
            return max(node.returns, default=0.0)
        return node.value_sum() / max(1, node.started())

    def score(self, node: Node, child: Node) -> float:
        visits_here, n = sum(sibling.started() for sibling in node.children), child.started()
        if self.selection == "puct":
            scale = self.c_exp * math.sqrt(max(1, visits_here))
            return self.value(child) + scale * child.prior * (1 / (1 + n))
        scale = self.c_exp * math.sqrt(math.log(max(1, visits_here)))
        return self.value(child) + scale * (1 / math.sqrt(max(1, n) if self.selection == "uct" else 1 + n))

    def select(self, node: Node) -> Node:
        open_children = [child for child in node.children if not (self.exhaust and child.exhausted())]
        fresh = [child for child in open_children if child.started() == 0]
        if fresh and (self.unvisited == "first" or self.selection == "uct"):
            return fresh[0]
        return max(open_children, key=lambda c: (self.score(node, c), -c.started(), -node.children.index(c)))

    def descend(self, root: Node) -> Node:
        """Where the next rollout waits."""
        node, draws = root, Draws(self.seed, root.tree, root.started())
        while node.children:
            if self.selection.startswith("thompson"):
                below = self.thompson(node, draws)
            else:
                below = self.gumbel(node, root) if self.selection == "gumbel" else self.select(node)
            if below is None:
                break
            node = below
        return node

    def seen(self, node: Node) -> list[float]:
        """Returns told; 0 for those in flight."""
        return node.returns + [0.0] * node.in_flight()

    def told_here(self, node: Node) -> list[float]:
        """Of a node, without what was told deeper; 0 for those that wait."""
        return node.own + [0.0] * node.waiting

    def thompson(self, node: Node, draws: Draws) -> Node | None:
        """A child, or None: a new one is wanted."""
        beta = self.selection == "thompson_beta"
        known = [child for child in node.children if child.children or child.started() > child.waiting]
        wider = [r for child in known for r in self.told_here(child)]
        deeper = [self.discount * r for child in known for below in child.children for r in self.seen(below)]
        new, old = draw_mean(draws, wider, beta), draw_mean(draws, deeper, beta)
        rest = [child for child in known if not (self.exhaust and child.exhausted())]
        if not (old > new and rest):
            return None
        values = [draw_mean(draws, self.seen(child), beta) for child in rest]
        return rest[values.index(max(values))]

    def gumbel(self, node: Node, root: Node, recommend: bool = False) -> Node:
        visits = [child.started() for child in node.children]
        priors = [child.prior for child in node.children]
        q = [child.value_sum() / n if n else None for child, n in zip(node.children, visits, strict=True)]
        sigmas = sigma(q, visits, priors, self.told_here(node))
        open_ones = [i for i, c in enumerate(node.children) if recommend or not (self.exhaust and c.exhausted())]
        if node is not root:
            policy = improved_policy(sigmas, priors)
            return node.children[max(open_ones, key=lambda i: (policy[i] - visits[i] / (1 + sum(visits)), -i))]
        draws = Draws(self.seed, root.tree, 2**64 - 1 - root.reroots)
        score = [
            self.gumbel_scale * draws.gumbel() + math.log(max(p, TINY)) + s for p, s in zip(priors, sigmas, strict=True)
        ]
        wanted = max(visits)
        if not recommend:
            since = max(0, sum(visits) - root.base)
            wanted = considered_visits(min(self.max_considered, len(visits)), self.num_simulations, since + 1)[since]
        return node.children[min(open_ones, key=lambda i: (abs(visits[i] - wanted), -score[i], i))]

    def recommend(self, root: Node) -> Node | None:
        if not root.children:
            return None
        if self.selection == "gumbel":
            return self.gumbel(root, root, recommend=True)
        return max(root.children, key=lambda c: (c.started(), self.mean(c), -root.children.index(c)))

    def ask(self, root: Node, n: int) -> tuple[list[list[Node]], int]:
        """Tickets, and why there are no more: 0 there are n, 1 exhausted, 2 blocked."""
        tickets: list[list[Node]] = []
        for _ in range(n):
            if self.exhaust and root.exhausted():
                return tickets, 1
            if self.selection == "best_first":
                leaves = [n for n in root.below() if not (n.children or n.waiting or (self.exhaust and n.exhausted()))]
                if not leaves:
                    return tickets, 2 if root.in_flight() else 1
                node = max(leaves, key=lambda leaf: (leaf.critic_value, -self.ids[leaf]))
            else:
                node = self.descend(root)
            if node.waiting and not self.selection.startswith("thompson"):
                return tickets, 2
            node.waiting += 1
            tickets.append([node])
        return tickets, 0

    def expand(self, ticket: list[Node], critic: list[float], logps: list[float], priors: list[float]) -> None:
        rows = zip(critic, logps, priors, strict=True)
        ticket[0].children = [self.born(ticket[0], *row) for row in rows]

    def born(self, parent: Node | None, *values: float) -> Node:
        return Node(parent, *values, widens=self.selection.startswith("thompson"))

    def widen(self, ticket: list[Node], critic: float, logp: float, prior: float) -> None:
        ticket[0].children.append(self.born(ticket[0], critic, logp, prior))
        self.extend(ticket, -1)

    def extend(self, ticket: list[Node], rank: int) -> None:
        ticket[0].waiting -= 1
        ticket[0] = ticket[0].children[rank]
        ticket[0].waiting += 1

    def tell(self, ticket: list[Node], value: float) -> None:
        node = ticket[0]
        node.waiting -= 1
        node.told_terminal |= node.terminal
        node.own.append(value)
        success = self.success_at is not None and value >= self.success_at
        for step in node.path():
            step.returns.append(value)
            step.successes += success
            value *= self.discount

    def cancel(self, ticket: list[Node]) -> None:
        ticket[0].waiting -= 1

    def prune(self, node: Node) -> None:
        node.children = []
        node.own = list(node.returns)  # nothing is deeper any more

    def pairs(
        self, root: Node, *, alpha: float, threshold: float, min_visits: int = 1, max_pairs_per_node: int = 0
    ) -> list[tuple[Node, Node, Node, float]]:
        """(node, chosen, rejected, gap) in the order of the compiled forest."""

        def blended(node: Node) -> float:
            if self.backup == "max":
                q = max(node.returns, default=0.0)
            else:
                q = node.value_sum() / len(node.returns) if node.returns else 0.0
            return alpha * q + (1 - alpha) * node.critic_value

        found = []
        for node in root.below():
            explored = [child for child in node.children if len(child.returns) >= min_visits]
            here = []
            for a, b in combinations(explored, 2):
                better, worse = (a, b) if blended(a) > blended(b) else (b, a)
                gap = blended(better) - blended(worse)
                if gap > 0 and gap >= threshold:
                    here.append((node, better, worse, gap))
            here.sort(key=lambda pair: (-pair[3], node.children.index(pair[1]), node.children.index(pair[2])))
            found += here[:max_pairs_per_node] if max_pairs_per_node else here
        return found

    def table(self, root: Node) -> dict[str, list[float]]:
        """The table of the compiled forest, without ids."""
        nodes = root.below()
        row = {node: i for i, node in enumerate(nodes)}
        return {
            "parent": [-1 if n is root else row[n.parent] for n in nodes if n.parent or n is root],
            "depth": [len(n.path()) - 1 for n in nodes],
            "visit_count": [len(n.returns) for n in nodes],
            "in_flight": [n.in_flight() for n in nodes],
            "value_sum": [max(n.returns, default=0.0) if self.backup == "max" else n.value_sum() for n in nodes],
            "own_count": [len(n.own) for n in nodes],
            **({"successes": [n.successes for n in nodes]} if self.success_at is not None else {}),
            "critic_value": [n.critic_value for n in nodes],
            "logp": [n.logp for n in nodes],
            **({"own_sum": [sum(n.own) for n in nodes]} if self.backup == "mean" else {}),
            "flags": [n.terminal + 2 * (self.exhaust and n.exhausted()) for n in nodes],
        }
