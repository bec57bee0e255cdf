/*-------------------------------------------------------------------------
 *
 * own_channels.h
 *	  The channels on which pg_herald itself sends notifications to the sessions that listen to
 *	  them.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_OWN_CHANNELS_H
#define HERALD_OWN_CHANNELS_H

/* Notifications are missing. */
#define HERALD_RESET_CHANNEL	"herald_reset"

/*
 * The position up to which the session has received everything, as a token
 * (notify/position/token.h).
 */
#define HERALD_POSITION_CHANNEL	"herald_position"

/* Is it one of these?  Only pg_herald sends on them. */
extern bool herald_own_channel(const char *channel);

/*
 * The channel that this session registers with the server in place of such a channel; without
 * a channel the server would not wake the session.  The name is secret, so that a notification
 * which another session sends to the real channel through the server's queue is not delivered.
 * In the current memory context.
 */
extern char *herald_own_channel_native_name(const char *channel);

#endif							/* HERALD_OWN_CHANNELS_H */
