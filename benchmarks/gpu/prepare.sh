#!/usr/bin/env bash
# Create .gpu-kit/ in this checkout: the files that a trial on a GPU host without network access
# needs in addition to the checkout (docs/internals/gpu-trial.md).
#
#   benchmarks/gpu/prepare.sh         [PYTHON_VERSION=3.12] [MOST_MIB=64]
#
# It holds the wheels of packages.txt, in the versions of constraints.txt, and the git program of
# this machine with its libraries. Git ignores the folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=benchmarks/gpu/packages.txt
kit=.gpu-kit
version=${PYTHON_VERSION:-3.12}
most=${MOST_MIB:-64}

rm -rf "$kit"
mkdir -p "$kit/wheels"
pip=(python3 -m pip --disable-pip-version-check)
target=(--only-binary=:all: --python-version "$version" --implementation cp)
for platform in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux1; do
    target+=(--platform "${platform}_x86_64")
done
"${pip[@]}" download -qq --no-deps "${target[@]}" -c constraints.txt -d "$kit/wheels" -r "$packages"

# Install them once, as the host will: none may be missing or there twice.
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
"${pip[@]}" install -qq --no-index --no-deps --no-compile "${target[@]}" --target "$trial" "$kit"/wheels/*.whl
wanted=$(grep -c '^[a-z]' "$packages")
installed=$(find "$trial" -maxdepth 1 -name '*.dist-info' | wc -l)
if [ "$wanted" != "$installed" ]; then
    echo "prepare: $packages lists $wanted packages, but $installed would be installed" >&2
    exit 1
fi

# A git for hosts without one: the program, and its libraries other than the C library.
if [ "$(uname -m)" = x86_64 ]; then
    mkdir -p "$kit/git/lib"
    cp -L "$(command -v git)" "$kit/git/git.bin"
    ldd "$kit/git/git.bin" | awk '$3 ~ /^\// {print $3}' |
        grep -vE '/(libc|libpthread|libm|libdl|librt)\.so' | xargs -r -I{} cp -L {} "$kit/git/lib/"
fi

carried=$(du -sk "$kit" | cut -f1)
tracked=$(git ls-files -z | xargs -0 du -ck --apparent-size | tail -n 1 | cut -f1)
echo "prepared: $kit has $wanted wheels and takes $((carried / 1024)) MiB, with the checkout $(((carried + tracked) / 1024)) MiB"
if [ $((carried / 1024)) -ge "$most" ]; then
    echo "prepare: $kit takes more than $most MiB; remove packages from $packages, or set MOST_MIB" >&2
    exit 1
fi
git check-ignore -q "$kit" || { echo "prepare: git does not ignore $kit" >&2; exit 1; }
