"""The search core alone, without a language model: 64 agents on a line plan at once how to get to 20 from 1.

Each may double its number or add 3, eight times. One call asks a leaf of every tree, one gives it children, one tells
what came out; `recommend` names the first action of each.
"""

from __future__ import annotations

from agentq import Forest

GOAL, STEPS, MOVES = 20, 8, (lambda x: 2 * x, lambda x: x + 3)

forest = Forest(selection="uct", c_exp=0.5)
trees = forest.add_trees(64)
place = {forest.root(tree): (1 + tree % 4, 0) for tree in trees.tolist()}
for _ in range(200):
    tickets, nodes, *_ = forest.ask(trees)  # trees that are searched to their ends give none
    fresh = [ticket for ticket, node in zip(tickets, nodes.tolist(), strict=True) if place[node][1] < STEPS]
    ended = [ticket for ticket, node in zip(tickets, nodes.tolist(), strict=True) if place[node][1] == STEPS]
    forest.set_terminal(ended)
    first = iter(forest.expand(fresh, [len(MOVES)] * len(fresh)).tolist())
    for node in nodes.tolist():
        x, step = place[node]
        if step < STEPS:
            child = next(first)
            place |= {child + i: (move(x), step + 1) for i, move in enumerate(MOVES)}
    forest.tell(tickets, [1 / (1 + abs(GOAL - place[node][0])) for node in nodes.tolist()])

for tree, node in zip(trees[:4].tolist(), forest.recommend(trees[:4]).tolist(), strict=True):
    print(f"from {place[forest.root(tree)][0]}: go to {place[node][0]}")
forest.drop(trees[1:])

# The same one leaf at a time, on the tree that is left: quicker from Python where there is but one.
(tree,) = forest.trees.tolist()
for _ in range(50):
    leaf = forest.ask_one(tree)
    if leaf is None:
        break
    ticket, node = leaf
    x, step = place[node]
    if step == STEPS:
        forest.set_terminal([ticket])
    elif (child := forest.expand_one(ticket, len(MOVES))) is not None:
        place |= {child + i: (move(x), step + 1) for i, move in enumerate(MOVES)}
    forest.tell_one(ticket, 1 / (1 + abs(GOAL - x)))
print(f"{forest.table(tree)['visit_count'][0]} rollouts, {forest.num_nodes} nodes, {forest.bytes_in_use} bytes")
