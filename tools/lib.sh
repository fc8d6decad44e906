# Shared by ./quickstart and ./test: packages, configuring, building, reading test results. Sourced, never run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

jobs=${HIERLOCK_JOBS:-$(nproc)}
in_ci=no
if [[ ${CI:-} == true || ${CI:-} == 1 ]]; then in_ci=yes; fi

say() { printf '== %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# --- packages ---------------------------------------------------------------------------------------------------------

installed_something=no

# ensure_packages GROUP...: installs the missing ones of tools/packages, and touches apt only if there are any.
ensure_packages() {
  local group name missing=() as_root=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian system: going on with what is installed (tools/packages lists what is needed)"
    return 0
  fi
  for group in "$@"; do
    for name in $(sed -n "s/^$group: *//p" tools/packages); do
      if [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) != installed ]]; then missing+=("$name"); fi
    done
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0

  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null ||
      die "needs these Debian packages, and you are neither root nor have sudo. Ask for: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing Debian packages${as_root[*]:+ with sudo}: ${missing[*]}"
  # The package lists may be absent or too old to fetch from; only then are they updated.
  apt_install "${missing[@]}" 2>/dev/null || {
    say "updating the package lists"
    "${as_root[@]}" apt-get -qq update || die "apt-get update failed"
    apt_install "${missing[@]}" || die "could not install: ${missing[*]}"
  }
  installed_something=yes
}

apt_install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@" >/dev/null
}

# --- building ---------------------------------------------------------------------------------------------------------

# configure PRESET [ARGS...]: only when something that ninja does not watch has changed; ninja watches the rest.
configure() {
  local preset=$1 stamp=build/$1/configured.stamp now
  shift
  now="$* $(cksum <CMakePresets.json)"
  if [[ $installed_something == no && -f build/$preset/build.ninja && -f $stamp && $(<"$stamp") == "$now" ]]; then
    return 0
  fi
  rm -f "$stamp"
  cmake --preset "$preset" "$@" >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log" >&2
    return 1
  }
  printf '%s\n' "$now" >"$stamp"
}

# build PRESET [TARGET...]
build() {
  local preset=$1 quiet=()
  shift
  # A terminal gets ninja's moving line, a log only what went wrong.
  if [[ ! -t 1 ]]; then quiet=(-- --quiet); fi
  cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"} "${quiet[@]}"
}

# --- servers ----------------------------------------------------------------------------------------------------------

# named_by NAME: the variable of the environment that names this server of tools/servers. Empty if there is none.
named_by() {
  local variable=HIERLOCK_TEST_${1^^}
  variable=${variable/:/_}
  if [[ $1 == mysql && -z ${!variable:-} ]]; then variable=MYSQL_DSN; fi
  if [[ -n ${!variable:-} ]]; then echo "$variable"; fi
}

# --- test results -----------------------------------------------------------------------------------------------------

# skipped_cases XML: a line for each case of a gtest program that was not run, `SUITE.CASE|WHY`.
skipped_cases() {
  awk '
    function attribute(name) { return match($0, " " name "=\"[^\"]*\"") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4) : "" }
    /<testcase / {
      name = attribute("classname") "." attribute("name")
      if (attribute("status") == "notrun") print name "|disabled"
      waiting = attribute("result") == "skipped"
    }
    # The message begins with the place in the source.
    waiting && /<skipped message=/ {
      why = attribute("message")
      gsub(/&#x0A;/, " ", why); gsub(/&apos;/, "\047", why); gsub(/&quot;/, "\"", why); sub(/^[^ ]*:[0-9]+ /, "", why)
      print name "|" why
      waiting = 0
    }' "$1"
}

# times_of_cases FOLDER: a line for each case of the gtest programs that ran, and for each other test, `SECONDS TEST CASE`.
times_of_cases() {
  local results=$1 name seconds
  [[ -f $results/ctest.junit ]] || return 0
  while read -r name seconds; do
    if [[ -f $results/$name.xml ]]; then
      sed -nE 's/.*<testcase name="([^"]*)".* status="run".* time="([0-9.]*)".* classname="([^"]*)".*/\2 '"$name"' \3.\1/p' \
        "$results/$name.xml"
    else
      echo "$seconds $name"
    fi
  done < <(sed -nE 's/.*<testcase name="([^"]*)".* time="([^"]*)" status="(run|fail)".*/\1 \2/p' "$results/ctest.junit")
}

# slowest_cases: of lines as times_of_cases prints them, the ten that took longest.
slowest_cases() { sort -k1,1nr | sed -n 1,10p; }

# lacking RESULTS TEST: `needs rights: ` and which, as a skipped test has printed it that is no gtest program. Empty if it has
# not.
lacking() {
  awk -v name=" name=\"$2\"" '
    /<testcase / { its = index($0, name) }
    its && match($0, /(^|>)needs rights: .*/) {
      why = substr($0, RSTART)
      sub(/^>/, "", why)
      gsub(/&lt;/, "<", why); gsub(/&gt;/, ">", why); gsub(/&quot;/, "\"", why); gsub(/&apos;/, "\047", why)
      gsub(/&amp;/, "\\&", why)
      print why
      exit
    }' "$1/ctest.junit"
}

# run_ctest PRESET ARGS...: runs, and sets passed, failed, skipped, not_applicable and lacks_rights. Adds the times of its
# cases to build/case-times. Returns 0 even if tests fail: the counts say it. Many tests wait more than they compute, so ctest
# is told of twice the processors, and a test that computes takes two of them.
run_ctest() {
  local preset=$1 results=build/$1/test-results status=0 wrapper=()
  shift
  rm -rf "$results"
  mkdir -p "$results"
  # The thread sanitizer of gcc 12 does not start on kernels that randomise addresses by more bits than it knows.
  # Not every container allows turning it off.
  if [[ $preset == tsan ]] && setarch -R true 2>/dev/null; then wrapper=(setarch -R); fi
  "${wrapper[@]}" ctest --test-dir "build/$preset" -j $((2 * jobs)) --output-on-failure --no-tests=error \
    --output-junit "$root/$results/ctest.junit" "$@" || status=$?
  count_results "$results"
  times_of_cases "$results" | sed "s/ / $preset /" >>build/case-times
  if [[ $status -ne 0 && $failed -eq 0 ]]; then failed=1; fi
}

# count_results FOLDER: sets passed, failed, skipped, not_applicable and lacks_rights from ctest.junit and the XML of gtest
# programs. Such a program counts with each of its cases, any other test as one. A case that says that it does not apply to a
# store (tests/support/not_applicable.h) is in not_applicable alone. A case that says that it needs rights which this machine
# does not give (tests/support/rights.h) is in lacks_rights alone. A case that is left out for any other reason is skipped.
count_results() {
  local results=$1 name state xml total bad left_out none forbidden why
  passed=0 failed=0 skipped=0 not_applicable=0 lacks_rights=0
  [[ -f $results/ctest.junit ]] || return 0
  while read -r name state; do
    xml=$results/$name.xml
    if [[ -f $xml ]]; then
      total=$(sed -n 's/^<testsuites tests="\([0-9]*\)".*/\1/p' "$xml")
      bad=$(sed -n 's/^<testsuites .* failures="\([0-9]*\)".*/\1/p' "$xml")
      skipped_cases "$xml" >"$results/$name.skipped"
      none=$(grep -c '|not applicable: ' "$results/$name.skipped" || true)
      forbidden=$(grep -c '|needs rights: ' "$results/$name.skipped" || true)
      left_out=$(($(wc -l <"$results/$name.skipped") - none - forbidden))
      # Failed as a whole with no case failed: a sanitizer's report, a crash at exit, a timeout.
      if [[ $state == fail && $bad -eq 0 ]]; then
        bad=1
        total=$((total + 1))
      fi
      passed=$((passed + total - bad - left_out - none - forbidden))
      failed=$((failed + bad))
      skipped=$((skipped + left_out))
      not_applicable=$((not_applicable + none))
      lacks_rights=$((lacks_rights + forbidden))
      sed -n '/|not applicable: /!s/^\([^|]*\)|/SKIPPED \1: /p' "$results/$name.skipped"
    elif [[ $state == run ]]; then
      passed=$((passed + 1))
    elif [[ $state == fail ]]; then
      failed=$((failed + 1))
    else
      why=$(lacking "$results" "$name")
      if [[ -n $why ]]; then lacks_rights=$((lacks_rights + 1)); else skipped=$((skipped + 1)); fi
      echo "SKIPPED $name${why:+: $why}"
    fi
  done < <(sed -nE 's/.*<testcase name="([^"]*)".* status="([^"]*)".*/\1 \2/p' "$results/ctest.junit")
  if [[ $not_applicable -gt 0 ]]; then
    say "not applicable: $not_applicable cases, by what a store does not promise"
    cat "$results"/*.skipped | sed -n 's/^[^|]*|not applicable: //p' | sort | uniq -c
  fi
}
