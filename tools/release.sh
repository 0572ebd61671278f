#!/usr/bin/env bash
# The two ends of a release, and what is kept of it.
#
#   tools/release.sh keep                                keeps schemas and documents of the version to come, for later ones to read
#   tools/release.sh check VERSION                       whether HEAD can become this release; prints version=VERSION
#   tools/release.sh tag VERSION IMAGE@sha256:DIGEST     makes the tag vVERSION, whose action.yml names its image by digest
#
# `check` wants the package's own version, a section of it in CHANGELOG.md, its schemas kept as they are, a commit of main, and no
# such release yet.
# `tag` pushes with GITHUB_TOKEN where it is set; without it, the tag stays here.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() {
    echo "release: $2" >&2
    exit "$1"
}

keep() {
    local version folder
    version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/ci_bench/__init__.py)
    folder=tests/fixtures/releases/$version
    [[ -z $(git tag --list "v$version") ]] || refuse 2 "v$version is released: what is kept of it stays as it is"
    rm -rf "$folder/schemas"
    mkdir -p "$folder/schemas" "$folder/documents"
    cp schemas/*.json "$folder/schemas"
    cp schemas/examples/valid/* "$folder/documents"
}

check() {
    local version=$1
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(rc[0-9]+)?$ ]] || refuse 2 "$version is not a version like 0.2.0 or 0.2.0rc1"
    grep -Fqx "__version__ = \"$version\"" src/ci_bench/__init__.py || refuse 2 "$version is not what src/ci_bench/__init__.py says"
    grep -Fq "## [$version]" CHANGELOG.md || refuse 2 "CHANGELOG.md has no section [$version]"
    for schema in schemas/*.json; do
        cmp -s "$schema" "tests/fixtures/releases/$version/$schema" || refuse 2 "$schema is not kept; run tools/release.sh keep"
    done
    git merge-base --is-ancestor HEAD origin/main || refuse 2 "this commit is not on main"
    [[ -z $(git tag --list "v$version") ]] || refuse 2 "v$version is released already"
    echo "version=$version"
}

tag() {
    local version=$1 image=$2
    [[ $image =~ ^[a-z0-9][a-z0-9./_-]*@sha256:[0-9a-f]{64}$ ]] || refuse 2 "$image is no image by its digest"
    sed -i "s|^    default: build\$|    default: $image|" action.yml
    grep -Fqx "    default: $image" action.yml || refuse 3 "action.yml has no 'default: build' to put the image in"
    git -c user.name=ci-bench -c user.email=ci-bench@localhost commit --quiet --all --message "Release $version"
    git tag "v$version"
    if [[ -n ${GITHUB_TOKEN:-} ]]; then
        # By the environment, so that the token is in no list of processes and in no file.
        GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=http.extraheader \
            GIT_CONFIG_VALUE_0="Authorization: Basic $(printf 'x-access-token:%s' "$GITHUB_TOKEN" | base64 -w0)" \
            git push --quiet "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY" "v$version"
    fi
}

case ${1:-} in
    keep) keep ;;
    check) check "${2:?check needs a version}" ;;
    tag) tag "${2:?tag needs a version}" "${3:?tag needs an image}" ;;
    *) refuse 2 "unknown command: ${1:-none}; keep, check or tag" ;;
esac
