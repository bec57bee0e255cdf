#!/bin/bash
#
# canary.sh BUILD [NAME...]
#	Does the fuzzer find bugs?  Takes one check at a time out of a copy of the
#	core, and runs the fuzzer, which has to fail.  All canaries, or only those
#	that are named.
#
# Takes CC, CORE, FLAGS and SOURCES from make.
#
# Copyright (c) 2026, the pg_herald contributors

set -u
build=$1
shift
names=" $* "
seconds=30
survivors=0

# try NAME FILE SED-EXPRESSION...
try()
{
	local name=$1 file=$2 dir=$build/canary/$1 sources
	shift 2
	[ "$names" = "  " ] || [[ $names = *" $name "* ]] || return
	rm -rf "$dir" && mkdir -p "$dir/corpus" && cp "$CORE"/*.[ch] "$dir"
	sed "$@" "$CORE/$file" > "$dir/$file"
	if cmp -s "$CORE/$file" "$dir/$file"; then
		echo "canary $name: its place is no longer in $file"
		survivors=$((survivors + 1))
		return
	fi
	sources=$(for source in $SOURCES; do echo "$dir/$source"; done)
	$CC $FLAGS -Wno-error -I"$dir" -o "$dir/queue_fuzz" queue_fuzz.c $sources || exit 2
	if "$dir/queue_fuzz" -seed=1 -timeout=3 -max_len=1000 -verbosity=0 -max_total_time=$seconds \
		-artifact_prefix="$dir/" "$dir/corpus" "$build/corpus" > "$dir/output" 2>&1; then
		echo "test canary_$name ... FAILED: not found"
		survivors=$((survivors + 1))
	else
		echo "test canary_$name ... ok: $(grep -m 1 -o 'not so: .*\|Sanitizer: .*\|runtime error: .*\|Assertion.*\|libFuzzer: timeout.*' "$dir/output" |
			cut -c 1-70)"
	fi
}

# One that says that it goes on beyond what has been dispatched.
try batch_beyond_end queue_reader.c 's/header->length > border - at || header->length > reader->end - at/header->length > border - at/'

# A batch that was aborted, with no length: it is skipped for ever.
try aborted_without_length queue_reader.c 's/header->length < sizeof(\*header) || header->length % HERALD_ALIGN != 0/header->length % HERALD_ALIGN != 0/'

# A length that is no multiple of 8: what comes next is not aligned.
try length_not_aligned queue_reader.c 's/header->length < sizeof(\*header) || header->length % HERALD_ALIGN != 0/header->length < sizeof(*header)/'

# Any word taken for that of a batch.
try any_word queue_reader.c '/^\tif (word != herald_word_make(at, HERALD_BATCH_COMMITTED) &&/,/return HERALD_READ_DAMAGED;/d'

# An entry that is used before all of it is there.
try entry_beyond_copy queue_reader.c '/if (!is_copied(reader, entry->length))/,/return refill(reader, entry->length);/d'

# An entry that is longer than its batch.
try entry_beyond_batch queue_reader.c 's/entry->length < sizeof(\*entry) || entry->length > room)/entry->length < sizeof(*entry))/'

# An entry whose body is longer than it.
try body_beyond_entry queue_layout.h 's/entry->body_length > entry->length - sizeof(HeraldEntry)/false/'

# One that says it names a file, and is too short for that.
try file_beyond_body queue_layout.h 's/return entry->body_length == sizeof(HeraldFileReference)/return true/'

# A file that leads to itself.
try file_in_file queue_reader.c 's/entry->kind != HERALD_ENTRY_FILE || reader->in_file/entry->kind != HERALD_ENTRY_FILE/'

# What is for the dispatcher handed out as a message.
try any_kind queue_reader.c 's/message->entry->kind == HERALD_ENTRY_NOTIFICATION/message->entry->kind != HERALD_ENTRY_FILE/'

# A channel that is longer than its entry.
try channel_beyond_body queue_layout.h 's/prefix < entry->body_length \&\&/entry->body_length > 0 \&\&/'

# A payload without an end.
try payload_without_end queue_layout.h "s/entry->body\[entry->body_length - 1\] == '.0'/true/"

# A chunk that goes on in the next segment.
try chunk_beyond_segment queue_reader.c 's/stop = herald_queue_next_segment(reader->queue, reader->position);/stop = reader->end;/'

# A chunk that is longer than the buffer.
try chunk_beyond_buffer queue_reader.c 's/if (stop > reader->position + reader->buffer_size)/if (false)/'

# A filler that leads beyond what has been dispatched.
try filler_beyond_end queue_reader.c 's/if (border > reader->end)/if (false)/'

# The same of the dispatcher.
try dispatched_beyond_segment sequencer.c 's/header->length <= herald_queue_next_segment(queue, position) - position/true/'
try dispatched_beyond_head sequencer.c 's/ || header->length > head - at//'
try filler_beyond_head sequencer.c 's/herald_queue_next_segment(queue, at) <= head/true/'
try dispatched_without_length sequencer.c 's/header->length >= sizeof(HeraldBatchHeader) \&\&/true \&\&/'

exit $((survivors > 0))
