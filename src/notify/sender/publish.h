/*-------------------------------------------------------------------------
 *
 * publish.h
 *	  The pending notifications at the transaction's end: reserve, then finish.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_PUBLISH_H
#define HERALD_PUBLISH_H

#include "postgres.h"

#include "base/compat.h"

#include "core/queue_layout.h"

/*
 * Before the commit: reserve a batch, copy the pending notifications into it, and put those on
 * logged channels into the WAL.  May throw: then the transaction is rolled back.
 */
extern void herald_publish_reserve(void);

/*
 * Called by the relay: publish the pending notifications on behalf of a transaction that it has read from the
 * WAL, of this database, with this commit and sender.  They are not logged again.
 */
extern void herald_publish_as(Oid database, HeraldCommitId commit, HeraldSender sender);

/*
 * Hand all pending notifications over to the server's own queue, in order, except for those that
 * it has already.  Throws what the server's NOTIFY throws.
 */
extern void herald_publish_natively(void);

/* Before the commit: the same; then nothing is left to do for our own queue. */
extern void herald_publish_all_natively(void);

/* Throw 0A000: the notification would go through the server's own queue, and its channel is logged. */
herald_noreturn extern void herald_publish_refuse(const char *channel);

/*
 * After the commit is visible, or after the abort: finish the batch, if there
 * is one, and dispatch.  Never fails.  Returns whether there was one; *end is
 * the position after it.
 */
extern bool herald_publish_finish(bool committed, HeraldPosition *end);

/* Is some channel that was published one for which `test` says yes?  Until herald_pending_reset(). */
typedef bool (*HeraldEntryTest) (const HeraldEntry *entry);
extern bool herald_publish_concerns(HeraldEntryTest test);

#endif							/* HERALD_PUBLISH_H */
