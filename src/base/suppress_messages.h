/*-------------------------------------------------------------------------
 *
 * suppress_messages.h
 *	  Runs a function with client messages suppressed.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SUPPRESS_MESSAGES_H
#define HERALD_SUPPRESS_MESSAGES_H

#include "postgres.h"

/*
 * Call a function where no message may reach the client and no error may reach the caller:
 * under a lock, or at the end of a transaction.  Messages go to the server's log only;
 * interrupts are held off.  False: the function returned false or threw an error.
 */
extern bool herald_with_messages_suppressed(bool (*function) (void *), void *arg);

/* The same, and an error is not logged either. */
extern bool herald_with_errors_dropped(bool (*function) (void *), void *arg);

#endif							/* HERALD_SUPPRESS_MESSAGES_H */
