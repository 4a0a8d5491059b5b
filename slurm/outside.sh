#!/usr/bin/env bash
# Run a command in a container, and SLURM's commands that it asks for outside of the container, where they exist:
#   slurm/outside.sh apptainer exec --bind /shared /shared/sesame.sif sesame submit experiment=bert_base
# Jobs of sites with `container:` run this file too. The container must see this folder, or the folder that
# SESAME_CALLS_IN names: calls are exchanged as files there (pipeline/cluster/outside.py).
set -uo pipefail
calls=$(mktemp -d "${SESAME_CALLS_IN:-$PWD}/.calls-XXXXXXXX") || exit 1
trap 'rm -rf "$calls"' EXIT
export SESAME_CALLS=$calls

perform() {
  local name=$1
  bash "$name.sh" &
  echo $! >"$name.pid"
  wait $!
  echo $? >"$name.code.part" && mv "$name.code.part" "$name.code"
}

"$@" &
work=$!
# Background processes ignore Ctrl-C, so it is passed on as TERM.
trap 'kill -s TERM "$work" 2>/dev/null' INT TERM
trap 'kill -s USR1 "$work" 2>/dev/null' USR1
trap 'kill -s USR2 "$work" 2>/dev/null' USR2
while kill -0 "$work" 2>/dev/null; do
  for call in "$calls"/*.call; do
    [[ -e $call ]] || continue
    name=${call%.call}
    mv "$call" "$name.sh" && perform "$name" &
  done
  sleep 0.1
done
wait "$work"
