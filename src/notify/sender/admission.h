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
 * Reserve a batch with `length` bytes of entries, and wait for room as long as it takes.  Before
 * the commit record.  previous: the end of this session's previous batch, or 0.  False: the
 * queue is damaged.  May throw, as any wait for a lock.
 */
extern bool herald_admission_reserve(const HeraldBatch *info, uint64 length, HeraldPosition previous,
									 HeraldPosition *position);

#endif							/* HERALD_ADMISSION_H */
