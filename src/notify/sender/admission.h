/*-------------------------------------------------------------------------
 *
 * admission.h
 *	  Reserves a batch: at once, or after a wait as for a lock.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ADMISSION_H
#define HERALD_ADMISSION_H

#include "postgres.h"

#include "core/queue.h"

/*
 * Reserve a batch with `length` bytes of entries.  If there is no room, wait for it, until
 * lock_timeout or a cancel request ends the wait with an error, as any wait for a lock.  Before
 * the commit record.  previous: the end of this session's previous batch, if that belongs to the
 * same message of the client; else 0.  False: the queue is damaged.
 */
extern bool herald_admission_reserve(const HeraldBatch *info, uint64 length, HeraldPosition previous,
									 HeraldPosition *position);

#endif							/* HERALD_ADMISSION_H */
