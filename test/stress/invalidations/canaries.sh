# The bugs that this stress has to find; see ../common/canary.sh, which reads this.
#
# Where the bug is a weaker memory ordering, the canary does at once what such
# an ordering would allow: the machine that this runs on may never do it.
#
# Copyright (c) 2026, the pg_herald contributors

seconds=3
dawdle="for (int i = 0; i < 20; i++) herald_jitter(1);"

# The head moves before the messages are there [I1].
try head_then_messages inval_queue.c \
	-e '/^herald_inval_insert/,/^}/s/^\tfor (uint32_t i.*/\tatomic_store_explicit(\&queue->head, head + count, memory_order_seq_cst);\n&/'

# Messages that come before the resets [I2].
try messages_then_resets inval_queue.c \
	-e '/^herald_inval_insert/,/^}/{/^\tif (look)/,+1d;s/^\tatomic_store_explicit(&queue->head/\tif (look)\n\t\tlook_after_readers(queue, head + count);\n&/;}'

# A reader that believes whatever it has copied [I2].
try not_looked_at_again inval_queue.c \
	-e '/^herald_inval_read/,/^}/s/^\tif (!atomic_compare_exchange_strong.*/\tword = atomic_load_explicit(\&reader->word, memory_order_relaxed);\n&/'

# A reader that says that it has read before it does [I3].
try word_then_copies inval_queue.c \
	-e '/^herald_inval_read/,/^}/s/^\tfor (uint64_t i.*/\tif (!atomic_compare_exchange_strong_explicit(\&reader->word, \&word, word + (count << 2), memory_order_release, memory_order_relaxed))\n\t\treturn -1;\n\tword += count << 2;\n&/'

# Nobody is reset.
try never_reset inval_queue.c -e '/^needed_by/,/^}/s/if (position + queue->size >= head)/if (position + queue->size >= head || true)/'

# Everybody is, who is not at the head.
try all_reset inval_queue.c -e '/^needed_by/,/^}/s/if (position + queue->size >= head)/if (position + HERALD_INVAL_WRITE_QUANTUM >= head)/'

# One message too early, and one too late.
try reset_too_early inval_queue.c -e '/^needed_by/,/^}/s/if (position + queue->size >= head)/if (position + queue->size > head)/'
try reset_too_late inval_queue.c -e '/^needed_by/,/^}/s/if (position + queue->size >= head)/if (position + queue->size + 1 >= head)/'

# Looks that come too late.
try look_too_late inval_queue.c -e '/^look_after_readers/,/^}/s/next = queue->size;/next += quantum;/'
try look_counts_from_head inval_queue.c -e 's/queue->look_at = needed + next;/queue->look_at = head + next;/'

# The last slot is not looked at.
try last_slot_forgotten inval_queue.c -e '/^herald_inval_join/,/^}/s/slots_used, slot + 1,/slots_used, slot,/'

# A turn that ends with whom it was handed to.
try not_handed_on inval_queue.c -e '/^hand_turn_on/,/^}/s/return give_turn(queue);/return HERALD_INVAL_NOBODY;/'

# A turn that does not end.
try turn_kept inval_queue.c -e '/^herald_inval_caught_up/,/^}/s/= hand_turn_on(queue, slot)/= HERALD_INVAL_NOBODY/'

# A turn taken along at exit.
try left_with_turn inval_queue.c -e '/^herald_inval_leave/,/^}/s/return hand_turn_on(queue, slot);/return HERALD_INVAL_NOBODY;/'

# A turn that stays with who was reset.
try reset_with_turn inval_queue.c -e '/^needed_by/,/^}/s/^\t*(void) take_turn_back(queue, turn);/\t\t\t\t(void) 0;/'

# A turn given to several at once.
try two_turns inval_queue.c -e '/^give_turn/,/^}/s/if (turn_holder(turn) != HERALD_INVAL_NOBODY)/if (false)/'

# A turn that has the same number as the last.
try same_number inval_queue.c -e '/^give_turn/,/^}/s/((turn >> 32) + 1) << 32/(turn >> 32) << 32/'

# Given to one who has gone meanwhile [I4]: by who gives it, and by who goes.  Left alone they hardly
# ever meet, here and below: the one who looked waits.
try given_to_the_gone inval_queue.c \
	-e "/^give_turn/,/^}/s/^\t\tnext = ((turn/\t\t$dawdle\n&/" \
	-e '/^give_turn/,/^}/s/if (herald_inval_state(word) == HERALD_INVAL_READING)/(void) word;\n\t\tif (true)/'
try look_then_leave inval_queue.c \
	-e '/^herald_inval_leave/,/^}/{s/^{/{\n\tint32_t next = hand_turn_on(queue, slot);\n/;s/return hand_turn_on(queue, slot);/return next;/;}'

# The stuck one gets the next turn, too.
try stuck_not_skipped inval_queue.c -e 's/atomic_load_explicit(&reader->stuck, memory_order_relaxed) == 0)/true)/'

# Stuck for ever: in general; since it looked too early; since the watchdog came too late [I5].
try stuck_for_ever inval_queue.c -e '/^clear_stuck/,/^}/s/^\t\tatomic_store_explicit.*/\t\t(void) 0;/'
try stuck_then_turn inval_queue.c \
	-e "/^herald_inval_caught_up/,/^}/{s/^\tclear_stuck.*//;s/^\tint32_t\t*next/\tclear_stuck(\&queue->readers[slot]);\n\t$dawdle\n&/;}"
try mark_stays inval_queue.c -e '/^herald_inval_rescue/,/^}/{s/^\t\tclear_stuck(reader);//;s/^\tatomic_store_explicit(&reader->stuck/\t'"$dawdle"'\n&/;}'

# The turn is looked at, and only then the head moves [I6].
try turn_then_head inval_queue.c \
	-e "/^herald_inval_insert/,/^}/s/^\tatomic_store_explicit(&queue->head/\tif (look)\n\t\tsignalled = give_turn(queue);\n\t$dawdle\n&/" \
	-e '/^herald_inval_insert/,/^}/{s/return look ? give_turn(queue) : HERALD_INVAL_NOBODY;/return signalled;/;s/^{/{\n\tint32_t signalled = HERALD_INVAL_NOBODY;/;}'
