/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  Writes an entry of the queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ENTRY_H
#define HERALD_ENTRY_H

#include "postgres.h"

#include "core/queue_layout.h"

/*
 * Write an entry in the form that it has in the queue, and return its length: a notification, a
 * part of a reference, or where the batch is in the WAL.
 */
extern uint64 herald_entry_write(HeraldEntry *entry, const char *channel, size_t channel_length,
								 const char *payload, size_t payload_length);
extern uint64 herald_entry_write_file(HeraldEntry *entry, uint64 number, uint64 length);
extern uint64 herald_entry_write_channel(HeraldEntry *entry, const char *channel,
										 uint32 notifications);
extern uint64 herald_entry_write_all_listeners(HeraldEntry *entry);
extern uint64 herald_entry_write_commit(HeraldEntry *entry, HeraldCommitId commit);

#endif							/* HERALD_ENTRY_H */
