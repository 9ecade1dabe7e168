#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs programs one after the other, each within its time, and frames what each
# says with lines that test_selftests.py looks for.
#
# usage: run_selftests.sh DIRECTORY 'SECONDS PROGRAM ARGUMENT...'...

cd "$1" || exit
shift
# What bash says of a program that a signal ended belongs to the frame, too.
exec 2>&1
huge=/sys/kernel/mm/hugepages/hugepages-2048kB
echo 256 >$huge/nr_hugepages

number=0
for test; do
    read -r limit command <<<"$test"
    echo "@@ begin $number"
    begun=$EPOCHREALTIME
    # shellcheck disable=SC2086 # it is words
    timeout -k 5 "$limit" ./$command </dev/null
    status=$?
    ended=$EPOCHREALTIME
    printf '\n@@ end %d %d %d\n' "$number" "$status" \
        $(((${ended/./} - ${begun/./}) / 1000))
    number=$((number + 1))
done
