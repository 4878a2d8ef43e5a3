"""The search core alone, without a language model: 64 trees at once search for a way to the number 20.

They start from 1, 2, 3 or 4. A step doubles the number or adds 3, and there are eight steps. `ask` returns a leaf of
every tree, `expand` gives the leaves children, and `tell` reports their returns; `recommend` returns the first action.
"""

from __future__ import annotations

from agentq import Forest

GOAL, STEPS, MOVES = 20, 8, (lambda x: 2 * x, lambda x: x + 3)

forest = Forest(selection="uct", c_exp=0.5)
trees = forest.add_trees(64)
place = {forest.root(tree): (1 + tree % 4, 0) for tree in trees.tolist()}
for _ in range(200):
    tickets, nodes, *_ = forest.ask(trees)  # fully searched trees return no leaf
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

# The same with one leaf at a time, on the tree that is left. This is quicker from Python for a single tree.
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
