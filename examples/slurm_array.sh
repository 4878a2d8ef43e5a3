#!/bin/bash
# A run in 16 shards as a Slurm array, then one job that merges and trains. Usage: bash examples/slurm_array.sh MODEL DIR
# A preempted shard is queued again and continues.
set -euo pipefail
model=$1 dir=$2
array=$(sbatch --parsable --array=1-16 --cpus-per-task=4 --time=04:00:00 --requeue --wrap \
    "agentq train agent_q --base $model --run.shard \$SLURM_ARRAY_TASK_ID/16 --out $dir/shard-\$SLURM_ARRAY_TASK_ID")
sbatch --dependency="afterok:$array" --gpus=1 --time=08:00:00 --wrap \
    "agentq merge $dir/shard-* --out $dir/run && agentq train agent_q --base $model --out $dir/run"
