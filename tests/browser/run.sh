#!/usr/bin/env bash
# run.sh lessons [SITE [OUTPUT]]: opens the pages of ./run lessons --site SITE (build/lessons) in headless Chromium, in
# light and dark, at three widths (check_lessons.py).
# run.sh [PROGRAM [OUTPUT]]: opens reports of `norma compare` in headless Chromium, in light and dark, on paper, at the
# width of a desk and of a phone, checks them (check_report.py) and keeps a picture of each in OUTPUT (build/browser).
# Installs Debian's packages of Chromium and Selenium where it can. Not part of CI. Exit 1: a check failed, or there is no
# browser.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
what=reports
if [ "${1:-}" = lessons ]; then what=lessons; shift; fi
program=${1:-build/cpu-release/cli/norma}
site=${1:-build/lessons}
output=${2:-build/browser}

packages=(chromium chromium-driver python3-selenium)
if ! dpkg -s "${packages[@]}" >/dev/null 2>&1 && command -v apt-get >/dev/null; then
  echo "browser: installing ${packages[*]}" >&2
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c \
    "apt-get update && apt-get install --yes --no-install-recommends ${packages[*]}" >/dev/null 2>&1 </dev/null || true
fi
python=/usr/bin/python3  # Debian's, which has Debian's Selenium
command -v chromedriver >/dev/null && "$python" -c 'import selenium' 2>/dev/null || {
  echo "browser: NOT TESTED: it needs Debian's packages ${packages[*]}"; exit 1; }
if [ "$what" = lessons ]; then
  [ -e "$site/index.html" ] || { echo "browser: NOT TESTED: there is no $site/index.html: ./run lessons --site $site"; exit 1; }
  mkdir -p "$output"
  exec "$python" tests/browser/check_lessons.py "$site" "$output"
fi
[ -x "$program" ] || { echo "browser: NOT TESTED: there is no $program: build it first"; exit 1; }

mkdir -p "$output"
"$python" tests/browser/make_reports.py "$program" "$output"
"$python" tests/browser/check_report.py "$output"
