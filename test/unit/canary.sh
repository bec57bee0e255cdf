#!/bin/bash
#
# canary.sh BUILD
#	Do the tests of freshness.c find bugs?  Leaves out one part of the rule at
#	a time, in a copy of the core, and runs them: one has to fail.  A canary
#	that survives fails this script.
#
# Takes CC, CORE and FLAGS from make.
#
# Copyright (c) 2026, the pg_herald contributors

set -euo pipefail
build=$1/canary
survivors=0
programs=(test_freshness_world test_freshness)

# run PROGRAM: with $build/freshness.c
run()
{
	$CC $FLAGS -w -o "$build/$1" "$build/$1.o" "$build/freshness.c" -lcmocka
	timeout 60 "$build/$1" > "$build/output" 2>&1
}

# try NAME SED-EXPRESSION...
try()
{
	local name=$1 program
	shift
	sed "$@" "$CORE/freshness.c" > "$build/freshness.c"
	if cmp -s "$CORE/freshness.c" "$build/freshness.c"; then
		echo "canary $name: its place is no longer in freshness.c"
		survivors=$((survivors + 1))
		return
	fi
	for program in "${programs[@]}"; do
		if ! run "$program"; then
			echo "canary $name: found by $program: $(grep -m 1 -o 'key .*\|^\[ *FAILED *\] [a-z].*' "$build/output")"
			return
		fi
	done
	echo "canary $name: NOT FOUND"
	survivors=$((survivors + 1))
}

rm -rf "$build" && mkdir -p "$build"
for program in "${programs[@]}"; do
	$CC $FLAGS -c -o "$build/$program.o" "$program.c"
	cp "$CORE/freshness.c" "$build"
	run "$program" || { echo "$program fails, and nothing is broken"; exit 1; }
done

# Whoever has invalidated it is not asked for at all.
try sees_everything '/^herald_freshness_sees(/,/^}/s/sees_range(.*/true;/'

# Those that come after the snapshot are forgotten, and those that were running.
try later_ones '/^sees_range(/,/^}/s/if (!herald_xid_precedes(range->highest, snapshot->xmax))/if (false)/'
try running_ones '/^sees_range(/,/^}/s/i < snapshot->count/i < 0/'
try not_the_lowest 's/!herald_xid_precedes(snapshot->running\[i\], range->lowest)/herald_xid_precedes(range->lowest, snapshot->running[i])/'
try not_the_highest 's/!herald_xid_precedes(range->highest, snapshot->running\[i\])/herald_xid_precedes(snapshot->running[i], range->highest)/'

# A range that does not grow, at either end; one that begins anew too early, or never.
try not_lower 's/if (herald_xid_precedes(xid, range->lowest))/if (false)/'
try not_higher 's/if (herald_xid_precedes(range->highest, xid))/if (false)/'
try always_anew 's/if (range->highest != 0 && herald_xid_precedes(range->highest, xmin))/if (true)/'
try never_anew 's/if (range->highest != 0 && herald_xid_precedes(range->highest, xmin))/if (false)/'
try raised_too_far 's/range->lowest = xmin;/range->lowest = range->highest;/'
try anew_unseen '/^herald_freshness_note_seen/,/^}/s/if (sees_range(range, oldest))/if (true)/'
try never_seen '/^herald_freshness_note_seen/,/^}/s/if (sees_range(range, oldest))/if (false)/'
try unseen_not_noted '/^herald_freshness_note_seen/,/^}/s/if (!sees_range(&alone, oldest))/if (false)/'
try seen_noted '/^herald_freshness_note_seen/,/^}/s/if (!sees_range(&alone, oldest))/if (true)/'
try never_raised 's/range->lowest = xmin;/(void) 0;/'
try never_raised_seen 's/^\traise_lowest(range, oldest->xmin);/(void) 0;/'
try late_ones_widen 's/ || herald_xid_precedes(xid, xmin))/)/'

# Snapshots older than what was dropped.
try no_floor '/^is_before_floor/,/^}/s/return .*/return (void) snapshot, (void) freshness, false;/'
try no_floor_snapshot '/^is_before_floor/,/^}/s/freshness->floor_xmax != 0 \&\&/false \&\&/'
try floor_of_same_xmax '/^is_older/,/^}/s/(snapshot->xmax == xmax \&\&/(false \&\&/'
try floor_snapshot_goes_back '/^raise_floor_to/,/^}/s/freshness->floor_xmax != 0 \&\&/false \&\&/'
try floor_snapshot_stays '/^herald_freshness_advance/,/^}/s/freshness->floor_xmax = 0;/(void) 0;/'
try floor_goes_back 's/if (freshness->floor != 0 && !herald_xid_precedes(freshness->floor, xmin))/if (false)/'

# What was missed.
try nothing_missed '/^herald_freshness_sees_missed/,/^}/s/if (before == 0)/if (true)/'
try missed_running '/^herald_freshness_sees_missed/,/^}/s/i < snapshot->count/i < 0/'
try missed_between 's/if (herald_xid_precedes(snapshot->xmax, before) \&\&/if (false \&\&/'
try missed_beyond 's/if (freshness->also_missed_count > 0 \&\&/if (false \&\&/'
try missed_beyond_running '/^is_missed/,/^}/s/return contains.*also.*/return false;/'
try missed_floor '/^herald_freshness_sees_missed/,/^}/s/ || is_before_floor(freshness, snapshot))/)/'
try nobody_is_committing 's/is_committing = committing\[c\] == now->running\[i\];/(void) 0;/'
try everything_missed 's/not_missed\[count++\] = now->running\[i\];/(void) 0;/'
try id_twice 's/if (left == 0 .. sorted.left - 1. != sorted.i.)/if (true)/'
try join_unsorted 's/qsort(freshness->not_missed, .*/(void) compare_xids;/'
try also_unsorted 's/qsort(freshness->also_missed, .*/(void) 0;/'
try join_keeps_buckets 's/herald_freshness_init(freshness);$/freshness->floor = 0; freshness->is_worn_out = false;/'
try forgotten_early '/^forget_what_was_missed/,/^}/s/if (!herald_xid_precedes(.*/if (/'
try also_forgotten_early 's/(also == 0 || .*)))$/true)/'
try never_forgotten 's/if (freshness->missed_before != 0)/if (false)/'
try special_ids 's/(to < from ? FIRST_NORMAL_XID : 0)/0/'

# What grows old.
try never_swept '/^sweep(/,/^}/s/range->highest = 0;/(void) 0;/'
try never_worn_out 's/freshness->is_worn_out = true;/(void) 0;/'
try worn_out_is_kept '/^herald_freshness_sees(/,/^}/s/!freshness->is_worn_out \&\& //;/^herald_freshness_sees_missed/,/^}/s/freshness->is_worn_out || //'

[ $survivors -eq 0 ] || { echo "$survivors canaries survived"; exit 1; }
