#!/usr/bin/env bash
# A Docker Engine, and the image of this checkout on it, for tests and for trying things by hand.
#
#   tools/docker.sh up FOLDER          finds an engine, or starts one of its own; prints NAME=VALUE lines to export
#   tools/docker.sh build FOLDER TAG   builds the Dockerfile on it; without the CUDA base where that can't be pulled
#   tools/docker.sh registry FOLDER    starts a registry on the loopback, its images in FOLDER/registry; prints REGISTRY=ADDRESS
#   tools/docker.sh down FOLDER        stops what `up` and `registry` started, and removes FOLDER
#
# An engine that answers `docker info` is used as it is. Otherwise, as root on Debian or Ubuntu, docker.io is installed and a private
# dockerd started: its own socket and data in FOLDER, no bridge, no firewall rules. Exit code 77 means: neither is possible here; the
# last line on stderr says why. Variables:
#   CI_BENCH_TEST_BASE    the base image to build on (default: a bare Debian made on the spot where the engine is private, or else
#                         ubuntu:24.04, which the CUDA base stands on)
#   CI_BENCH_TEST_INDEX   a further package index to take torch from, such as one with builds for the CPU
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
readonly cannot=77 standin=localhost/ci-bench-standin:bookworm

refuse() {
    echo "docker: $*" >&2
    exit "$cannot"
}

lacking() { [[ $command == registry ]] && echo "there is no registry here" || echo "no engine answers"; }

# Debian's packages, if they are missing.
need() {
    local missing=()
    for package in "$@"; do
        dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    if ((${#missing[@]})); then
        command -v apt-get >/dev/null || refuse "$(lacking), and there is no apt-get to install one with"
        [[ $(id -u) == 0 ]] || refuse "$(lacking), and only root can install ${missing[*]}"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
            >"$folder/apt.log" 2>&1 || refuse "$(lacking), and apt-get can't install ${missing[*]}: $(tail -1 "$folder/apt.log")"
    fi
}

up() {
    if docker info >"$folder/info.log" 2>&1; then
        echo "DOCKER=$(command -v docker)" >"$folder/environment"
    else
        start_engine
    fi
    cat "$folder/environment"
}

start_engine() {
    need docker.io
    local client socket=unix://$folder/docker.sock
    # the package's own client, which can use BuildKit, whatever else is on the path
    client=$(dpkg -L docker.io docker-cli 2>/dev/null | grep '/bin/docker$' | tail -1 || true)
    [[ -x $client ]] || refuse "docker.io brought no client"
    setsid dockerd --host "$socket" --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/dockerd.pid" \
        --bridge=none --iptables=false --ip6tables=false --ip-forward=false >"$folder/dockerd.log" 2>&1 </dev/null &
    local engine=$!
    until "$client" --host "$socket" version >/dev/null 2>&1; do
        kill -0 "$engine" 2>/dev/null || refuse "dockerd doesn't start: $(tail -1 "$folder/dockerd.log")"
        sleep 0.5
    done
    printf '%s\n' "DOCKER=$client" "DOCKER_HOST=$socket" "DOCKER_BUILDKIT=1" >"$folder/environment"
}

# Debian's registry and what signs and verifies images in it, at a port that is free. The address is 127.0.0.1, which engines take
# without TLS.
registry() {
    need docker-registry skopeo gpg gpg-agent
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    printf '%s\n' 'version: 0.1' 'log: {level: warn}' "storage: {filesystem: {rootdirectory: \"$folder/registry\"}}" \
        "http: {addr: \"127.0.0.1:$port\"}" >"$folder/registry.yml"
    setsid docker-registry serve "$folder/registry.yml" >"$folder/registry.log" 2>&1 </dev/null &
    echo $! >"$folder/registry.pid"
    until (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        kill -0 "$(cat "$folder/registry.pid")" 2>/dev/null || refuse "docker-registry doesn't start: $(tail -1 "$folder/registry.log")"
        sleep 0.1
    done
    echo "REGISTRY=127.0.0.1:$port"
}

# Names the base. A private engine gets a bare Debian: without Python, compiler or curl, so that what the Dockerfile forgets shows.
base() {
    if [[ -n ${CI_BENCH_TEST_BASE:-} ]]; then
        echo "$CI_BENCH_TEST_BASE"
    elif [[ -z ${DOCKER_HOST:-} && ! -e $folder/dockerd.pid ]]; then
        echo ubuntu:24.04
    else
        [[ -n $("$DOCKER" image ls --quiet "$standin") ]] || make_standin >&2
        echo "$standin"
    fi
}

# The machine's certificates and pip's settings go into the stand-in, never into the Dockerfile.
# shellcheck disable=SC2016 # mmdebstrap's hooks expand their own $1
make_standin() {
    need mmdebstrap
    TMPDIR=$folder mmdebstrap --quiet --variant=minbase --include=ca-certificates \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --setup-hook='mkdir -p "$1/usr/local/share"' \
        --setup-hook='! [ -d /usr/local/share/ca-certificates ] || cp -r /usr/local/share/ca-certificates "$1/usr/local/share/"' \
        --customize-hook='chroot "$1" update-ca-certificates >/dev/null 2>&1' \
        --customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' \
        --customize-hook="cp '$folder/pip.conf' \"\$1/etc/pip.conf\"" \
        bookworm - | "$DOCKER" import --change 'CMD ["bash"]' - "$standin"
}

build() {
    local tag=$1 base torch=
    set -a
    # shellcheck source=/dev/null # written by up
    source "$folder/environment"
    set +a
    mkdir -p "$folder/served" && rm -f "$folder/pip.conf"
    python3 "$here/tools/pip_settings.py" "$folder/pip.conf" "$folder/served" &
    server=$! # not local: the trap outlives this function
    trap 'kill "$server" 2>/dev/null || true' EXIT
    until [[ -s $folder/pip.conf ]]; do
        kill -0 "$server" || refuse "pip's settings can't be read"
        sleep 0.1
    done
    base=$(base)
    # the stand-in has this machine's indexes, whose build of torch may be another than the one whose hash is locked
    [[ $base != "$standin" ]] || torch=$(grep '^torch==' "$here/constraints.txt")
    "$DOCKER" build --network=host --tag "$tag" --build-arg "BASE_IMAGE=$base" --build-arg "VERSION=$(version)" \
        --build-arg "REVISION=$(git -C "$here" rev-parse HEAD 2>/dev/null || echo unknown)" \
        --build-arg "TORCH=$torch" --build-arg "TORCH_INDEX=${CI_BENCH_TEST_INDEX:-}" "$here"
}

version() { sed -n 's/^__version__ = "\(.*\)"/\1/p' "$here/src/ci_bench/__init__.py"; }

down() {
    [[ ! -e $folder/registry.pid ]] || kill -TERM "$(cat "$folder/registry.pid")" 2>/dev/null || true
    if [[ -e $folder/dockerd.pid ]]; then
        local engine
        engine=$(cat "$folder/dockerd.pid")
        kill -TERM "$engine" 2>/dev/null || true
        for _ in {1..100}; do
            kill -0 "$engine" 2>/dev/null || break
            sleep 0.1
        done
        umount "$folder/exec/netns/default" 2>/dev/null || true
    fi
    rm -rf "$folder"
}

command=${1:-} folder=${2:-}
[[ -n $folder ]] || { sed -n '2,8p' "$0" >&2; exit 2; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
case $command in
    up | down | registry) "$command" ;;
    build) build "${3:?build needs a tag}" ;;
    *) echo "docker: unknown command: $command" >&2; exit 2 ;;
esac
