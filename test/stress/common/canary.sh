#!/bin/bash
#
# canary.sh BUILD [NAME...]
#	Does the stress find bugs?  Puts one at a time into a copy of the core,
#	and runs the stress, which has to fail, by a check of its own (exit code 1)
#	or by an assertion of the core's (134).  A canary that survives all its
#	seeds fails this script.  All canaries, or only those that are named.
#
# Runs in the program's folder, where canaries.sh tells of its bugs.  Uses the
# object files of BUILD/plain.  Takes CC, CORE and FLAGS from make.
#
# Copyright (c) 2026, the pg_herald contributors

set -euo pipefail
build=$1
shift
names=" $* "
tried=" "
seeds=10
seconds=4
hang_seconds=8
survivors=0

# try NAME FILE SED-EXPRESSION...
try()
{
	local name=$1 file=$2 dir=$build/canary/$1 seed status
	shift 2
	[ "$names" = "  " ] || [[ $names = *" $name "* ]] || return 0
	tried+="$name "
	rm -rf "$dir"
	mkdir -p "$dir"
	sed "$@" "$CORE/$file" >"$dir/$file"
	if cmp -s "$CORE/$file" "$dir/$file"; then
		survives "$name" "its place is no longer in $file"
		return
	fi
	compile "$dir" "$file" || exit 2
	for seed in $(seq 1 "$seeds"); do
		status=0
		run_stress "$dir" "$seed" >"$dir/output" 2>&1 || status=$?
		if [ $status -eq 1 ] || [ $status -eq 134 ]; then
			echo "canary $name: found, $(grep -m 1 -o 'round [0-9]*: .*\|Assertion.*' "$dir/output")"
			return
		fi
	done
	survives "$name" "NOT FOUND (exit code $status)"
}

# compile DIR FILE: the program, with FILE from there.
compile()
{
	local object=${2%.c}.o
	$CC $FLAGS -w -I"$CORE" -c -o "$1/$object" "$1/$2" &&
		$CC $FLAGS -o "$1/stress" "$1/$object" $(find "$build/plain" -name '*.o' ! -name "$object")
}

# In a shell of its own, which says where the output goes that it was aborted.
run_stress()
{
	(timeout $((seconds + 20)) "$1/stress" --seed "$2" --seconds "$seconds" --hang-seconds "$hang_seconds"
		exit $?)
}

survives()
{
	echo "canary $1: $2"
	survivors=$((survivors + 1))
}

. ./canaries.sh

for name in $names; do
	[[ $tried = *" $name "* ]] || survives "$name" "there is none of that name"
done
exit $((survivors > 0))
