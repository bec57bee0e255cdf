/*-------------------------------------------------------------------------
 *
 * own_channels.h
 *	  The channels on which pg_herald itself speaks to a session that listens there.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_OWN_CHANNELS_H
#define HERALD_OWN_CHANNELS_H

/* Notifications are missing. */
#define HERALD_RESET_CHANNEL	"herald_reset"

/* So far the session has been sent everything: a token (notify/listener/token.h). */
#define HERALD_POSITION_CHANNEL	"herald_position"

#endif							/* HERALD_OWN_CHANNELS_H */
