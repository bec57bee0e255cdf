/*-------------------------------------------------------------------------
 *
 * server_steps.h
 *	  How long the server takes for this transaction's LISTENs and UNLISTENs.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SERVER_STEPS_H
#define HERALD_SERVER_STEPS_H

#include "postgres.h"

/*
 * The transaction runs a LISTEN or UNLISTEN, or an UNLISTEN *, in a session that listens to this
 * number of channels.  Never fails.
 */
extern void herald_server_steps_add(bool is_listen, uint64 channels);
extern void herald_server_steps_add_all(uint64 channels);

/* Does the server, which repeats them after our callback before the commit, take long? */
extern bool herald_server_steps_take_long(void);

/* The transaction is over. */
extern void herald_server_steps_reset(void);

#endif							/* HERALD_SERVER_STEPS_H */
