#!/usr/bin/env bash
# Makes sure that there is a Chromium for the tests of the HTML pages: Debian's own, where this runs as root or with password-less
# sudo. Without one those tests are skipped, each with a line that says so; this script never fails because of it.
set -uo pipefail

for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit 0
done
as_root=()
if [[ $(id -u) != 0 ]]; then
    as_root=(sudo -n)
    sudo -n true 2>/dev/null || { echo "browser: no Chromium; the tests of the HTML pages are skipped" >&2; exit 0; }
fi
command -v apt-get >/dev/null || { echo "browser: no Chromium and no apt-get; the tests of the HTML pages are skipped" >&2; exit 0; }
echo "browser: installing Debian's Chromium"
{
    "${as_root[@]}" apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core fonts-noto-color-emoji
} >/dev/null 2>&1 || echo "browser: apt-get could not install Chromium; the tests of the HTML pages are skipped" >&2
