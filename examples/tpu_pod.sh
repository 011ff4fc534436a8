#!/usr/bin/env bash
# A run on all hosts of a TPU pod, in the folder of this repository there:
#
#   examples/tpu_pod.sh NAME ZONE --task=cifar10_resnet18 --data_dir=DIR \
#     --output_dir=/mnt/shared/runs/pod
#
# All hosts must see the same folders. The same line goes on with a run that
# was ended, such as by the loss of a preemptible pod.
set -euo pipefail
if (($# < 2)); then
  echo "usage: $0 NAME ZONE FLAGS..." >&2
  exit 2
fi
printf -v flags ' %q' "${@:3}"
exec gcloud compute tpus tpu-vm ssh "$1" --zone="$2" --worker=all \
  --command="cd fedjax_opt && python -m experiments.run --cluster --resume$flags"
