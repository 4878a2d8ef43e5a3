"""`python -m agentq.cli`, the same as the command `agentq`."""

import sys

from agentq.cli import main

sys.exit(main())
