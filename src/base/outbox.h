/*-------------------------------------------------------------------------
 *
 * outbox.h
 *	  Messages to the client that wait until nobody waits for us.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_OUTBOX_H
#define HERALD_OUTBOX_H

#include "postgres.h"

/* When the module is loaded. */
extern void herald_outbox_init(void);

/*
 * From now on what goes to the client stays in the server's buffer, however
 * large that gets, until herald_outbox_open().  Calls do not nest; a repeated one
 * does nothing, nor does one in a process that does not send to a socket.
 * Never fails.
 */
extern void herald_outbox_close(void);

/*
 * Messages go out again.  What was to be sent meanwhile is sent now, as far as the
 * socket takes it.  Harmless to repeat.  Never fails.
 */
extern void herald_outbox_open(void);

extern bool herald_outbox_is_closed(void);

#endif							/* HERALD_OUTBOX_H */
