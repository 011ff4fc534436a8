#!/usr/bin/env bash
# One of the processes of a run on plain hosts. On the first host, then on each
# of the others with its number:
#
#   examples/hosts.sh a:1234 4 0 --task=digits --output_dir=runs/four
#   examples/hosts.sh a:1234 4 1 --task=digits --output_dir=runs/four
#
# a:1234 is the first host and any free port of it, in a private network. The
# same lines begin the run, and go on with it after an end of any kind.
set -euo pipefail
if (($# < 3)); then
  echo "usage: $0 COORDINATOR NUM_PROCESSES PROCESS_ID FLAGS..." >&2
  exit 2
fi
exec python -m experiments.run --coordinator="$1" --num_processes="$2" \
  --process_id="$3" --resume "${@:4}"
