"""The faults that `make mutants` tries, by the folder that they are put in."""

from tests.mutants import (
    benchmarks_faults,
    core_faults,
    credit_faults,
    critics_faults,
    envs_faults,
    evaluation_faults,
    learn_faults,
    policies_faults,
    recipes_faults,
    run_faults,
    searching_faults,
    settings_faults,
    store_faults,
)

FAULTS = [
    *credit_faults.FAULTS,
    *learn_faults.FAULTS,
    *recipes_faults.FAULTS,
    *searching_faults.FAULTS,
    *critics_faults.FAULTS,
    *envs_faults.FAULTS,
    *policies_faults.FAULTS,
    *evaluation_faults.FAULTS,
    *benchmarks_faults.FAULTS,
    *store_faults.FAULTS,
    *run_faults.FAULTS,
    *settings_faults.FAULTS,
    *core_faults.FAULTS,
]
