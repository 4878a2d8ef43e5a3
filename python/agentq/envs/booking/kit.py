"""`booking` put together."""

from __future__ import annotations

from agentq.envs.booking.expert import EXPERT
from agentq.envs.booking.site import BookingSite, new_session
from agentq.envs.booking.tasks import answer, instruction, score
from agentq.envs.booking.world import random_query
from agentq.envs.web_env import SiteKit

KIT = SiteKit("booking", BookingSite(), 25, new_session, instruction, score, answer, EXPERT, random_query)
