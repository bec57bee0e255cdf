/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  Writing an entry of the queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ENTRY_H
#define HERALD_ENTRY_H

#include "postgres.h"

#include "core/queue_layout.h"

/* Write an entry in the form that it has in the queue, all of its length. */
extern void herald_entry_write(HeraldEntry *entry, const char *channel,
									   size_t channel_length, const char *payload,
									   size_t payload_length);

#endif							/* HERALD_ENTRY_H */
