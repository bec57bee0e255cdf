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
 * A delivery begins.  If the client waits for us there is no waiting in it.
 */
extern void herald_moderation_begin(bool client_waits);

/* It sends a message from this sender, which stands in this batch. */
extern void herald_moderation_sent(int32 sender_pid, HeraldPosition batch);

/*
 * All up to `position` is read.  May wait a moment for more;
 * then what there was before has gone to the client.  True: more has come.
 */
extern bool herald_moderation_stay(HeraldPosition position);

/*
 * It ends, and the turn is about to be passed on: wait a little before, if need
 * be.  at_end: all there was is read.
 */
extern void herald_moderation_end(bool at_end);

#endif							/* HERALD_MODERATION_H */
