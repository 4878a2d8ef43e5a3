"""`shop` put together."""

from __future__ import annotations

from agentq.envs.shop.expert import EXPERT
from agentq.envs.shop.site import ShopSite, new_session
from agentq.envs.shop.tasks import answer, instruction, score
from agentq.envs.shop.world import random_query
from agentq.envs.web_env import SiteKit

KIT = SiteKit("shop", ShopSite(), 15, new_session, instruction, score, answer, EXPERT, random_query)
