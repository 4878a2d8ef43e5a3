"""Does agentq lose data, act without permission or fail without a clear message under attacks that once worked?

    python benchmarks/attacks.py [--json] [--only 4.1 3.16] [--list]

Each attack repeats a case that an outside reviewer ran, with its number: 1.N is a finding on the parts and their
contracts, 2.N on algorithms, 3.N an input on the command line, 4.N an attack on reliability or security. Prints the
expected and the actual result. Attacks that need a missing Chromium or package are reported as skipped, never as
passed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from attack import ATTACKS, Attack, Result, run
from machine import commit, machine, target

MODULES = (
    "attacks_cli",
    "attacks_directories",
    "attacks_live",
    "attacks_policies",
    "attacks_store",
    "attacks_remote",
    "attacks_core",
    "attacks_faults",
    "attacks_contract",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 if every attack that ran ended as expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument(
        "--only", nargs="*", metavar="NUMBER", help="numbers such as 4.1; a section such as 4 means all of it"
    )
    parser.add_argument("--list", action="store_true", help="list the attacks without running them")
    args = parser.parse_args(argv)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and its children too
    os.environ.setdefault("AGENTQ_NO_SANDBOX", "1")  # pages are of its own, and root has no sandbox
    for module in MODULES:
        import_module(module)
    chosen = [attack for attack in sorted(ATTACKS.values()) if _is_chosen(attack, args.only)]
    if args.list:
        print("\n".join(f"{attack.number:6} {attack.what}" for attack in chosen))
        return 0
    results = []
    for i, attack in enumerate(chosen, 1):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="attack") as folder:
            results.append(run(attack, Path(folder)))
        verdict = results[-1].verdict
        print(
            f"{i}/{len(chosen)} {attack.number} {verdict} ({time.monotonic() - begun:.1f} s): {attack.what}",
            file=sys.stderr,
        )
    _print_table(results)
    ran = [result for result in results if not result.skipped]
    if args.json:
        figures = {result.attack.number: result.to_dict() for result in results}
        share = sum(result.as_expected for result in ran) / max(1, len(ran))
        report = {"figures": figures, "targets": {"attacks_as_expected": target(share, 1.0)}}
        print(json.dumps(report | {"machine": machine("torch", "playwright"), "commit": commit()}))
    return int(not all(result.as_expected for result in ran))


def _is_chosen(attack: Attack, only: Sequence[str] | None) -> bool:
    return not only or any(attack.number == word or attack.number.startswith(f"{word}.") for word in only)


def _print_table(results: Sequence[Result]) -> None:
    for result in results:
        print(f"{result.attack.number:6} {result.verdict:9} {result.attack.what}")
        print(f"       expected: {result.attack.expected}")
        print(f"       got:      {result.got}")
    ran = [result for result in results if not result.skipped]
    print(f"{sum(r.as_expected for r in ran)} of {len(ran)} as expected, {len(results) - len(ran)} skipped")


if __name__ == "__main__":
    sys.exit(main())
