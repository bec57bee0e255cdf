/*-------------------------------------------------------------------------
 *
 * damage.c
 *	  A damaged notification queue is switched off.
 *
 * A dispatcher that finds bytes in the queue that no sender writes cannot go
 * on: it does not know where the next batch begins, or which listeners this one concerns.
 * Somebody has overwritten shared memory.  The rest of the server need not
 * suffer from that, because there is another way to notify, the server's own,
 * and every listener is registered there.  So from then on
 *
 * - NOTIFY goes the server's own way; what a transaction has pending is handed
 *	 over before its commit (herald_publish_natively());
 * - nothing is dispatched, recycled or written to files;
 * - nobody waits for room in the queue, or for its own batch;
 * - each listener is told, once, that it may have missed something, as one that
 *	 was overrun is.
 *
 * A transaction that has reserved its batch before may commit at any time
 * afterwards.  That batch reaches no listener.  A listener that was told before that
 * commit does not know of it; so its sender has all of them told again.
 *
 * A listener that finds damage in its own copy (deliver.c) ends alone.  What it
 * has read may be a file, which does not concern others; and a listener that reads the
 * same bytes finds the same.
 *
 * It remains so until the server is restarted.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "notify/dispatch/damage.h"
#include "notify/dispatch/turns.h"


void
herald_damage_found(HeraldPosition position)
{
	/*
	 * [D5] Before the words are marked: pairs with herald_shared_is_damaged().  A
	 * listener that does not see this is marked afterwards, and looks again.
	 */
	HOLD_INTERRUPTS();			/* the report would serve them */
	if (atomic_exchange(&herald_control->is_damaged, 1) == 0)
		ereport(LOG_SERVER_ONLY,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the notification queue of pg_herald is damaged at position %llu",
						(unsigned long long) position),
				 errdetail("Shared memory was overwritten. The queue is switched off: notifications go through the server's own queue, and listeners are told that they may have missed some."),
				 errhint("Restart the server when convenient."),
				 errhidestmt(true)));	/* of a sender that has no part in it */
	herald_damage_tell();
	RESUME_INTERRUPTS();
}

/*
 * At this position no listener can have read anything that was dispatched after
 * the damage was found, so none is taken for one that is through already.
 */
void
herald_damage_tell(void)
{
	HeraldPosition position = atomic_load(&herald_queue->dispatched);

	for (uint32 slot = 0; slot < herald_wakeup->slots; slot++)
		(void) herald_wakeup_mark(herald_wakeup, slot, position);
	herald_turns_pump();
}
