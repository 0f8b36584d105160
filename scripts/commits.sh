#!/bin/bash
# Checks the subjects of commits: `commits.sh` those since the base, `commits.sh --message FILE` the one in a file
# (the commit-msg hook). A subject has at most 72 characters and begins with an imperative, after a scope if it has one:
# "rsvp: Refuse a Resv without STYLE".
set -u
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/.." || exit 1

# The last commit before the rules.
base=74bfa6a

# The first word of a subject that is no imperative: an article or question word, or a form in -s, -ed or -ing.
no_imperative() {
    local word=${1,,}
    case $word in
    the | a | an | what | who | whoever | which | how | when | where | why | no | not | none | each | every | all | both | \
        its | it | one | two | three | some | more | this | that | there | wip | fixup | squash | minor | misc | docs | tests) return 0 ;;
    access | address | bypass | compress | cross | discuss | dismiss | express | focus | guess | miss | pass | process | suppress | \
        bring | string | embed | exceed | feed | need | proceed | seed | shed | shred | speed) return 1 ;;
    *ing | *ed | *s) return 0 ;;
    *) return 1 ;;
    esac
}

faults=0
fault() { # what, subject
    echo "commit subject $1: $2" >&2
    faults=$((faults + 1))
}

check_length() { if [ ${#1} -gt 72 ]; then fault "has ${#1} characters, 72 are allowed" "$1"; fi; }

check_form() {
    local text=$1
    # A scope: crates or areas, separated by commas, and a colon.
    if [[ $text =~ ^[a-z0-9_/.-]+(,\ [a-z0-9_/.-]+)*:\ (.*)$ ]]; then text=${BASH_REMATCH[2]}; fi
    if no_imperative "${text%%[ ,:]*}"; then fault "does not begin with an imperative" "$1"; fi
    if [[ $1 == *. ]]; then fault "ends with a full stop" "$1"; fi
}

if [ "${1:-}" = --message ]; then
    subject=$(grep -v '^#' "$2" | sed -n '/./{p;q}')
    case $subject in Merge\ * | Revert\ *) exit 0 ;; esac
    check_length "$subject"
    check_form "$subject"
    [ "$faults" = 0 ]
    exit
fi

if ! git merge-base --is-ancestor $base HEAD 2>/dev/null; then
    echo "skipped: the history here does not reach back to $base"
    exit 0
fi
while IFS= read -r subject; do
    check_length "$subject"
    check_form "$subject"
done < <(git log --no-merges --format=%s "$base..HEAD")
[ "$faults" = 0 ]
