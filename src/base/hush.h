/*-------------------------------------------------------------------------
 *
 * hush.h
 *	  Stretches in which a process has nothing to say to its client.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_HUSH_H
#define HERALD_HUSH_H

#include "postgres.h"

/*
 * Call a function where nothing may reach the client, nor an error the caller:
 * under a lock, or at the end of a transaction.  What there is to say goes to
 * the server's log only; interrupts are not served.  False: the function said so,
 * or threw an error.
 */
extern bool herald_hushed(bool (*function) (void *), void *arg);

#endif							/* HERALD_HUSH_H */
