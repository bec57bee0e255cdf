/*-------------------------------------------------------------------------
 *
 * heartbeat.h
 *	  A session's position at regular times, also when nothing happens.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_HEARTBEAT_H
#define HERALD_HEARTBEAT_H

#include "postgres.h"

/* The client of this listening session is sent a position now: from now on it is sent more.  Never fails. */
extern void herald_heartbeat_told(void);

/* The period changes in this session; 0: it sends no positions any more, or only as the queue advances.  Never fails. */
extern void herald_heartbeat_set_period(uint32 period_ms);

/* The client of this session does not listen to positions any more.  Never fails. */
extern void herald_heartbeat_end(void);

/* Is this session to send its client a position now? */
extern bool herald_heartbeat_is_due(void);

/* The position that is due cannot be sent: the next one is due after a period. */
extern void herald_heartbeat_skip(void);

/*
 * By the watchdog.  begin_look: is any position due, or has a session begun to send them?  Then look at all listeners
 * that there are.  look: if this listener is idle and its position is due, signal it; true: it was signalled.
 * end_early: not all listeners were looked at.
 */
extern bool herald_heartbeat_begin_look(uint64 now_ms);
extern bool herald_heartbeat_look(uint32 slot, uint64 word, uint64 now_ms);
extern void herald_heartbeat_end_early(void);

/*
 * By the watchdog: has a session begun to send them since it last looked?  [D4] Sequentially consistent: after it has
 * announced that it sleeps.
 */
extern bool herald_heartbeat_any_new(void);

/* By the watchdog: the time until the next position is due. */
extern uint64 herald_heartbeat_rest_ms(uint64 now_ms);

#endif							/* HERALD_HEARTBEAT_H */
