"""The kinds of errors on a step, and which of them are faults of the world."""

from __future__ import annotations

RESET_FAILED = "reset_failed"  # the first page of a task did not load, twice
REPLAY_MISMATCH = "replay_mismatch"  # a replay reached another page: the action was never executed
SESSION_LOST = "session_lost"  # the environment's process died, hung or broke its protocol
WORKER_LOST = "worker_lost"  # the process that worked on the task died, again and again

WORLD_FAULTS = frozenset(
    {
        RESET_FAILED,
        REPLAY_MISMATCH,
        SESSION_LOST,
        WORKER_LOST,
        "browser_lost",
        "network",
        "http_502",
        "http_503",
        "http_504",
    }
)
"""Error kinds that say nothing about the action: the world did not execute it, or may not have.

browser_lost: the browser died or the page never answered. network: no answer came over the network. http_502, 503 and
504: a gateway answered instead of the site.

Every other kind is an answer to the action, and a lesson. The page or its rules reject the action: unreadable,
no_such_element, no_such_option, no_such_secret, secret_origin, disabled, covered, wrong_role, not_taken, bad_argument,
bad_url, blocked, too_many_redirects, action_failed. The agent repeats itself: loop. The user decides: held, refused.
The site answers: other http codes. A served environment may have further kinds.
"""
