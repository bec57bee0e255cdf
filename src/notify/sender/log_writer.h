/*-------------------------------------------------------------------------
 *
 * log_writer.h
 *	  Puts a transaction's logged notifications into the WAL.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LOG_WRITER_H
#define HERALD_LOG_WRITER_H

#include "postgres.h"

#include "core/queue_layout.h"

/*
 * Write all parts of the message except the last part.  Called outside of subtransactions, before the transaction's
 * batch has its place in the queue.  The caller first calls _begin.  If _begin returns true, the caller then calls
 * _add for each of the transaction's notifications, in order, and finally _complete.  _begin returns false if no
 * channel of this database is logged.  _complete returns false if none of the added notifications is logged.  These
 * functions may throw.
 */
extern bool herald_log_writer_begin(void);
extern void herald_log_writer_add(const HeraldEntry *entry);
extern bool herald_log_writer_complete(void);

/* Write the last part, if there is one, with the place of the batch in the queue.  Never throws. */
extern void herald_log_writer_write(HeraldPosition place);

/* Forget the message.  Called when the transaction is over.  Never fails. */
extern void herald_log_writer_reset(void);

#endif							/* HERALD_LOG_WRITER_H */
