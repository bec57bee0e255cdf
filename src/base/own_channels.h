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

/* Is it one of these?  Nobody else sends there. */
extern bool herald_own_channel(const char *channel);

/*
 * The name under which this session is registered for it with the server, which needs one to
 * wake the session.  Nobody else knows it: what goes past us to the channel itself does not
 * arrive.  In the current memory context.
 */
extern char *herald_own_channel_native_name(const char *channel);

#endif							/* HERALD_OWN_CHANNELS_H */
