/*-------------------------------------------------------------------------
 *
 * outbox.h
 *	  Keeps messages to the client in the buffer while other processes wait for this one.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_OUTBOX_H
#define HERALD_OUTBOX_H

#include "postgres.h"

/* To be called when the module is loaded. */
extern void herald_outbox_init(void);

/*
 * From now on messages to the client stay in the server's buffer, which grows as needed, until
 * herald_outbox_open().  Calls do not nest: a repeated call does nothing.  A call in a process
 * that does not send to a socket does nothing either.  Never fails.
 */
extern void herald_outbox_close(void);

/*
 * Messages are sent again.  Those in the buffer are sent now, as far as the socket accepts
 * them.  Harmless to repeat.  Never fails.
 */
extern void herald_outbox_open(void);

extern bool herald_outbox_is_closed(void);

#endif							/* HERALD_OUTBOX_H */
