#!/bin/bash
# The image's entrypoint: finds places to write for whoever runs it, then becomes ci-bench. entrypoint/README.md has the contract.
#
# The container may run as any user, with or without a passwd entry, and with a read-only root file system. What the caller set, and
# can be used, stays as it is.
set -euo pipefail

# A folder to write in, from which a compiled kernel can be loaded: `--tmpfs /tmp` alone is mounted noexec.
usable() {
    local probe
    [[ -d ${1:-} && -w $1 ]] && probe=$(mktemp "$1/probe.XXXXXX" 2>/dev/null) || return 1
    printf '#!/bin/bash\n' >"$probe" && chmod u+x "$probe" && "$probe" 2>/dev/null
    local answer=$?
    rm -f "$probe"
    return "$answer"
}

scratch() {
    local folder
    for folder in "${TMPDIR:-/tmp}" /tmp /var/tmp /dev/shm; do
        if usable "$folder"; then
            echo "$folder"
            return
        fi
    done
    echo "ci-bench: no folder to write and run code in. With a read-only root file system, or with a /tmp that is mounted" \
        "noexec, start the container with --tmpfs /tmp:exec,mode=1777" >&2
    return 3
}

if [[ ! -r . || ! -x . ]]; then
    echo "ci-bench: user $(id -u) may not read $PWD: start the container as the owner of what is mounted there, for example with" \
        "--user \"\$(id -u):\$(id -g)\"" >&2
    exit 2
fi

TMPDIR=$(scratch)
export TMPDIR

# A user without a passwd entry has / for a home, and torch asks for a user's name to name its cache.
if [[ ${HOME:-/} == / || ! -d $HOME || ! -w $HOME ]]; then
    HOME=$(mktemp -d "$TMPDIR/home.XXXXXX")
    export HOME
fi
name=$(id -un 2>/dev/null) || name=uid-$(id -u)
export USER=${USER:-$name} LOGNAME=${LOGNAME:-$name}
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$TMPDIR/cache-$name}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$XDG_CACHE_HOME/inductor}
export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$XDG_CACHE_HOME/triton}
export MPLCONFIGDIR=${MPLCONFIGDIR:-$XDG_CACHE_HOME/matplotlib}

exec ci-bench "$@"
