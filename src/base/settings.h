/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The settings of pg_herald.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SETTINGS_H
#define HERALD_SETTINGS_H

#include "postgres.h"

#include "utils/guc.h"

/* The server's limit has no public definition: payloads must be shorter than this + 1. */
#define HERALD_PAYLOAD_MAX_OF_SERVER	(BLCKSZ - NAMEDATALEN - 128 - 1)

extern bool herald_enabled;		/* send through pg_herald's queue, not the
								 * server's own */
extern int	herald_queue_memory_kb;
extern int	herald_channel_memory_kb;
extern int	herald_max_channel_memory_per_role_kb;	/* -1: half of
													 * herald_channels_room() */
extern int	herald_max_queue_size_kb;
extern int	herald_max_uncommitted_per_role_kb; /* -1: half of
												 * herald_max_queue_size_kb */
extern int	herald_max_payload; /* bytes */
extern int	herald_resume_wal_size_mb;
extern int	herald_retain_size_kb;
extern int	herald_max_read_wait_ms;
extern int	herald_heartbeat_ms;	/* 0: none */
extern int	herald_wakeup_concurrency;	/* -1: by the number of CPUs */

/*
 * Define the settings and reserve their prefix.  Called once, in _PG_init().  The hook is
 * called when herald.heartbeat changes.
 */
extern void herald_settings_define(GucIntAssignHook heartbeat_changed);

/* Maximum number of turns at a time, at least 1. */
extern uint32 herald_settings_turns(void);

/* The same on a server at rest: as many, if the number is set. */
extern uint32 herald_settings_turns_at_rest(void);

#endif							/* HERALD_SETTINGS_H */
