/*-------------------------------------------------------------------------
 *
 * damage.c
 *	  Switches off a damaged notification queue.
 *
 * A dispatcher that finds bytes in the queue that no sender writes cannot continue: it does
 * not know where the next batch begins, or which listeners this one concerns.  Shared memory
 * has been overwritten.  The rest of the server can continue to work, because every listener
 * is also registered with the server's own NOTIFY.  So from then on
 *
 * - NOTIFY uses the server's own queue; pending notifications of a transaction are handed over
 *	 before its commit (herald_publish_natively());
 * - nothing is dispatched, recycled or written to files;
 * - no process waits for room in the queue, or for its own batch;
 * - each listener is notified, once, that it may have missed messages, like one that was
 *	 overrun.
 *
 * A batch that was reserved before the damage was found may be committed later.  It reaches no
 * listener, so its sender notifies all listeners again that they may have missed messages.
 *
 * If a listener finds damage in its own copy (deliver.c), only this session ends.  The damage
 * may be in a file that other sessions do not read, and a listener that reads the same bytes
 * finds the same damage.
 *
 * The queue stays off until the server is restarted.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/waits.h"
#include "notify/dispatch/damage.h"
#include "notify/dispatch/turns.h"


void
herald_damage_found(HeraldPosition position)
{
	HOLD_INTERRUPTS();			/* ereport() would serve them */

	/*
	 * [D5] Before the words are marked: pairs with
	 * herald_shared_is_damaged().  A listener that does not see the flag is
	 * marked afterwards, and checks it again.
	 */
	if (atomic_exchange(&herald_control->is_damaged, 1) == 0)
		ereport(LOG_SERVER_ONLY,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the notification queue of pg_herald is damaged at position %llu",
						(unsigned long long) position),
				 errdetail("Shared memory was overwritten. The queue is switched off: notifications go through the server's own queue, and listeners are told that they may have missed some."),
				 errhint("Restart the server when convenient."),
				 errhidestmt(true)));	/* the statement is not the cause */
	herald_damage_tell();
	RESUME_INTERRUPTS();
}

/*
 * No listener has read past this position, since nothing is dispatched any more.  So no
 * listener is taken for one that has read the message already.
 */
void
herald_damage_tell(void)
{
	HeraldPosition position = atomic_load(&herald_queue->dispatched);

	for (uint32 slot = 0; slot < herald_wakeup->slots; slot++)
		(void) herald_wakeup_mark(herald_wakeup, slot, position);
	herald_turns_pump();

	/* A damaged queue dispatches nothing, so there is nothing to wait for. */
	herald_wait_tell(&herald_control->settled_moved);
}
