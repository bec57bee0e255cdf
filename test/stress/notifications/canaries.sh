# The bugs that this stress has to find; see ../common/canary.sh, which reads this.
#
# Copyright (c) 2026, the pg_herald contributors

# A dispatcher that does not look once more after letting go of the lock [D1].
try no_last_look sequencer.c 's/} while (has_finished(queue));/} while (false);/'

# A listener that is not told of what comes while it reads [W1].
try not_again listener_word.c 's/next, HERALD_LISTENER_AGAIN/next, HERALD_LISTENER_PROCESSING/'

# Marking first, publishing the position afterwards [W1].
try mark_then_publish sequencer.c \
	-e '/atomic_store_explicit(&queue->dispatched, \*to, memory_order_seq_cst);/d' \
	-e 's/^\t*from = mark(queue, .*/&\natomic_store_explicit(\&queue->dispatched, to, memory_order_seq_cst);/'

# A dispatcher that forgets what the last one has published and not marked.
try rest_forgotten sequencer.c 's/from = atomic_load_explicit(&queue->settled, /from = atomic_load_explicit(\&queue->dispatched, /'

# The same within a batch.
try rest_of_batch_forgotten sequencer.c 's/^\tqueue->mark_offset = .*/\tqueue->mark_offset = 0;/'

# A listener that enters the set before it can be signalled [W1].
try set_then_requeue wakeup.c \
	-e '/^herald_wakeup_requeue/,/^}/{s/^\therald_listener_requeue.*//;s/^\tset_add.*/&\n\therald_listener_requeue(herald_wakeup_word(wakeup, slot), from);/;}'

# Listeners marked together, of whom only the last neighbours enter the set [W1].
try only_the_last_enter wakeup.c '/^herald_wakeup_mark_all/,/^}/s/^\t\t\tset_add.*/\t\t\t(void) 0;/'

# A listener that looks how far the queue is before it says that it is reading [W1].
try look_then_begin wakeup.c \
	-e '/^herald_wakeup_begin/,/^}/s/^{/{\n\tHeraldPosition early = atomic_load_explicit(\&queue->dispatched, memory_order_seq_cst);\n/' \
	-e '/^herald_wakeup_begin/,/^}/s/\*to = atomic_load_explicit.*/*to = early;/'

# A turn that two take back at once [W2].  Left alone they hardly ever meet: the one who looked waits.
try turn_taken_twice wakeup.c \
	's/atomic_exchange_explicit(&turn->serial, 0, memory_order_seq_cst) == 0)/(herald_jitter(2), atomic_store_explicit(\&turn->serial, 0, memory_order_seq_cst), false))/'

# A turn for which there was nobody, and which is not given back [W2].
try turn_kept wakeup.c 's/return_turn(wakeup);.*and look once more.*/(void) 0;/'

# A turn overwritten by the next one, and so lost [W2].
try turn_lost wakeup.c \
	's/if (atomic_exchange_explicit(&turn->serial, \*serial, memory_order_seq_cst) != 0)/atomic_store_explicit(\&turn->serial, *serial, memory_order_seq_cst); if (false)/'

# A reader that believes whatever it has copied [Q5].
try unchecked_copy queue_reader.c 's/return from >= atomic_load_explicit.*/return true;/'

# A ring whose old bytes are left where new headers will be [Q1].
try not_zeroed queue.c 's/zero(queue, old_tail, new_tail);/zero(queue, new_tail, new_tail);/'

# Memory given away before `to` says that it is saved [F1].
try recycle_then_to retention.c \
	's/^\t*atomic_store_explicit(&retention->to, next, memory_order_release);/(void) herald_queue_recycle(queue, next);\n&/'

# `to` covers a segment, and its memory is given away, before it is saved [F1].
try to_then_save retention.c \
	's/ = save_segment(&spiller, segment);/ = (atomic_store_explicit(\&retention->to, next, memory_order_release), herald_queue_recycle(queue, next), save_segment(\&spiller, segment));/'

# A segment that was recycled while it was being saved, and counts as saved.  Rare; so it is saved, too, when nobody
# is left who needs it, which alone does no harm.
seconds=20 try saved_unchecked retention.c \
	-e 's/if (atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed) != segment)/if (false)/' \
	-e 's/if (herald_wakeup_needed(wakeup, queue) < next)/if (bytes_kept(\&spiller) + queue->segment_size <= bytes_max || herald_wakeup_needed(wakeup, queue) < next)/'

# A segment that readers may have open, written once more.
try saved_twice retention.c 's/if (needed < next && !herald_retention_has(retention, segment))/if (needed < next)/'

# Laggards that nobody saves anything for.
try laggards_ignored wakeup.c \
	'/^herald_wakeup_needed/,/^}/s/lost = atomic_load_explicit(&queue->lost/lost = atomic_load_explicit(\&queue->tail/'

# A laggard in a transaction, which is thought to need nothing.
try busy_ignored wakeup.c \
	'/^herald_wakeup_needed/,/^}/s/herald_listener_is_pending(word))/herald_listener_is_pending(word) \&\& herald_word_state(word) != HERALD_LISTENER_BUSY_PENDING)/'

# One segment too many deleted.
try one_too_many retention.c 's/while (from < to && from + size <= position)/while (from < to \&\& from <= position)/'

# One that is never deleted.
try one_too_few retention.c 's/while (from < to && from + size <= position)/while (from < to \&\& from + size < position)/'

# Dropped without saying so.
try lost_stays retention.c 's/^\t*atomic_store_explicit(&spiller->queue->lost, position, memory_order_seq_cst);/\t\t(void) 0;/'

# Nobody is told who was overrun [F2].
try not_reported retention.c 's/spiller->calls->overrun(slot, reason);/(void) reason;/'

# A large file given up before its listeners are marked.
try unsettled_given_up retention.c 's/if (other >= atomic_load_explicit(&spiller->queue->settled, memory_order_acquire))/if (false)/'

# Large files that do not count for the limit.
try others_not_counted retention.c 's/(spiller->calls->others_bytes ? spiller->calls->others_bytes() : 0)/0/'

# More in files than there may be.
try limit_ignored retention.c 's/while (bytes_kept(spiller) + bytes > bytes_max)/while (bytes_kept(spiller) > bytes_max)/'

# The segment that cannot be saved is given away without a word.
try error_ignored retention.c 's/if (!spiller->calls->save(segment))/if (!spiller->calls->save(segment) \&\& herald_retention_bytes(spiller->retention) > 0)/'

# A reader that does not look elsewhere.
try never_elsewhere queue_reader.c 's/reader->read_spilled = read_spilled;/(void) read_spilled;/'

# A skip that stays where it is.
try skip_stays queue_reader.c '/^herald_reader_skip/,/^}/s/leave_batch(reader, reader->end)/leave_batch(reader, reader->position)/'

# A skip to the next batch only, which may be gone too, or never end.
try skip_within_batch queue_reader.c '/^herald_reader_skip/,/^}/s/leave_batch(reader, reader->end)/reader->position = reader->end/'
