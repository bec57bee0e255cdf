/*-------------------------------------------------------------------------
 *
 * moderation.h
 *	  Fewer, fuller wakeups while notifications keep coming.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_MODERATION_H
#define HERALD_MODERATION_H

#include "postgres.h"

#include "core/queue_layout.h"

/*
 * A delivery begins.  If the client waits for this backend, the delivery does not linger or
 * pause.
 */
extern void herald_moderation_begin(bool client_waits);

/* The delivery sends a message of this sender, from this batch. */
extern void herald_moderation_sent(int32 sender_pid, HeraldPosition batch);

/*
 * Everything up to `position` has been read.  May wait a moment for more, after sending the
 * output to the client.  True: more has arrived.
 */
extern bool herald_moderation_stay(HeraldPosition position);

/*
 * The delivery ends, and the turn is about to be passed on: pause before that if it is worth
 * it.  at_end: everything has been read; is_alone: it was one batch, and the queue ends with it.
 * True: the server is at rest.
 */
extern bool herald_moderation_end(bool at_end, bool is_alone);

#endif							/* HERALD_MODERATION_H */
