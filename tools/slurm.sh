#!/usr/bin/env bash
# A Slurm cluster on this machine, for tests and for trying things by hand: a controller, munge, and nodes node1, node2, … of one
# CPU and the feature h100 in the partition gpu.
#
#   tools/slurm.sh up FOLDER [NODES [PATH…]]   starts it with so many nodes (2); prints NAME=VALUE lines to export
#   tools/slurm.sh kill FOLDER NODE            kills a node by SIGKILL, with all that it runs
#   tools/slurm.sh start FOLDER NODE           starts a node again
#   tools/slurm.sh down FOLDER                 stops everything, and removes FOLDER
#
# Each node has an empty folder of its own at each PATH, which has to be there; of all others nodes see the same.
# As root on Debian or Ubuntu, Slurm's packages are installed where they are missing. A node is a slurmd in a process namespace of
# its own, so that its jobs die with it, as those of a real machine do; it is given up five seconds after its last word. Nothing
# listens but on the ports of the loopback that FOLDER/slurm.conf names, and every message needs the key in FOLDER. Exit code 77
# means: it can't be started here; the last line on stderr says why.
set -euo pipefail

readonly cannot=77

refuse() {
    echo "slurm: $*" >&2
    exit "$cannot"
}

need() {
    [[ $(id -u) == 0 ]] || refuse "only root can start a cluster: slurmd starts jobs as the users that submitted them"
    local missing=()
    for package in "$@"; do
        dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    if ((${#missing[@]})); then
        command -v apt-get >/dev/null || refuse "there is no Slurm here, and no apt-get to install it with"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
            >"$folder/apt.log" 2>&1 || refuse "apt-get can't install ${missing[*]}: $(tail -1 "$folder/apt.log")"
    fi
}

# So many ports of the loopback that are free, on one line.
ports() {
    python3 -c 'import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for each in held: each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in held))' "$1"
}

up() {
    local count=${1:-2} host number name free
    (($# < 2)) || printf '%s\n' "${@:2}" >"$folder/private"
    need slurmctld slurmd slurm-client munge
    unshare --pid --fork --mount-proc --kill-child true 2>"$folder/unshare.log" || refuse "no process namespaces: $(tail -1 "$folder/unshare.log")"
    host=$(hostname -s)
    read -ra free <<<"$(ports $((count + 1)))"
    chmod 755 "$folder"
    head -c 128 /dev/urandom >"$folder/munge.key"
    chmod 600 "$folder/munge.key"
    {
        printf '%s\n' ClusterName=trial "SlurmctldHost=$host(127.0.0.1)" "SlurmctldPort=${free[0]}" "SlurmctldPidFile=$folder/slurmctld.pid" \
            "SlurmctldLogFile=$folder/slurmctld.log" "StateSaveLocation=$folder/state" "SlurmdPidFile=$folder/%n.pid" \
            "SlurmdLogFile=$folder/%n.log" "SlurmdSpoolDir=$folder/spool-%n" AuthType=auth/munge CredType=cred/munge \
            "AuthInfo=socket=$folder/munge.socket" SlurmUser=root SlurmdUser=root ProctrackType=proctrack/pgid TaskPlugin=task/none \
            MpiDefault=none SwitchType=switch/none SelectType=select/cons_tres SelectTypeParameters=CR_CPU \
            SlurmdParameters=config_overrides ReturnToService=2 SlurmdTimeout=5 KillWait=2
        for ((number = 1; number <= count; number++)); do
            echo "NodeName=node$number NodeHostname=$host NodeAddr=127.0.0.1 Port=${free[number]} CPUs=1 Features=h100"
        done
        echo "PartitionName=gpu Nodes=ALL Default=YES State=UP"
    } >"$folder/slurm.conf"
    setsid munged --foreground --force --key-file "$folder/munge.key" --socket "$folder/munge.socket" --pid-file "$folder/munge.pid" \
        --seed-file "$folder/munge.seed" --log-file "$folder/munge.log" >"$folder/munged.out" 2>&1 </dev/null &
    echo $! >"$folder/munged.started"
    for _ in {1..50}; do
        [[ ! -S $folder/munge.socket ]] || break
        sleep 0.1
    done
    mkdir -p "$folder/state"
    setsid slurmctld -D -f "$folder/slurm.conf" >"$folder/slurmctld.out" 2>&1 </dev/null &
    echo $! >"$folder/slurmctld.started"
    for ((number = 1; number <= count; number++)); do start "node$number"; done
    for _ in {1..150}; do
        [[ $(idle) == "$count" ]] && break
        kill -0 "$(cat "$folder/slurmctld.started")" 2>/dev/null || break
        sleep 0.2
    done
    name=$(idle)
    [[ $name == "$count" ]] || refuse "$name of $count nodes are up: $(cat "$folder"/*.out | grep -i error | tail -1)"
    echo "SLURM_CONF=$folder/slurm.conf"
}

idle() { SLURM_CONF=$folder/slurm.conf sinfo --noheader --Node --states=idle --format=%N:%t 2>/dev/null | grep -c ':idle$' || true; }

start() {
    local private=()
    [[ ! -e $folder/private ]] || mapfile -t private <"$folder/private"
    mkdir -p "$folder/spool-$1"
    # shellcheck disable=SC2016 # the inner shell expands them
    setsid unshare --pid --fork --mount --mount-proc --kill-child bash -ec \
        'node=$1 conf=$2; shift 2; for path; do mount -t tmpfs -o mode=0700 private "$path"; done; exec slurmd -D -N "$node" -f "$conf"' \
        start "$1" "$folder/slurm.conf" "${private[@]}" >"$folder/$1.out" 2>&1 </dev/null &
    echo $! >"$folder/$1.started"
}

# The first process of its namespace ends with the one that made it, and all others with that.
end() {
    [[ ! -e $folder/$1.started ]] || kill -KILL "$(cat "$folder/$1.started")" 2>/dev/null || true
    rm -f "$folder/$1.started"
}

down() {
    local file
    for file in "$folder"/*.started; do
        [[ ! -e $file ]] || end "$(basename "$file" .started)"
    done
    rm -rf "$folder"
}

command=${1:-} folder=${2:-}
[[ -n $folder ]] || { sed -n '2,10p' "$0" >&2; exit 2; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
case $command in
    up) up "${@:3}" ;;
    kill) end "${3:?kill needs a node}" ;;
    start) start "${3:?start needs a node}" ;;
    down) down ;;
    *) echo "slurm: unknown command: $command" >&2; exit 2 ;;
esac
