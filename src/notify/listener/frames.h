/*-------------------------------------------------------------------------
 *
 * frames.h
 *	  Sends notifications to the client, many at a time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_FRAMES_H
#define HERALD_FRAMES_H

#include "postgres.h"

/* To be called when the module is loaded. */
extern void herald_frames_init(void);

/* A pass begins. */
extern void herald_frames_begin(void);

/*
 * Add a NotificationResponse with this body.  The destination must be DestRemote.  Call
 * herald_frames_send() before any other notification is sent to the client, and at the end of
 * the pass.  If an error ends the connection before, the added notifications have not been
 * sent.
 */
extern void herald_frames_add(const char *body, uint32 length);

/* Hand the added notifications to the server, which sends them when it flushes. */
extern void herald_frames_send(void);

/*
 * A notification with a body of `length` bytes is about to be handed to the server separately.
 */
extern void herald_frames_expect(uint32 length);

/* Send the server's buffer, as far as the client accepts it.  False: some of it is left. */
extern bool herald_frames_go_out(void);

/* Would the client accept some more, after the server's buffer, without a wait? */
extern bool herald_frames_has_room(void);

/* Send all of it.  May wait for the client for ever; ends this process when it is to end. */
extern void herald_frames_flush(void);

#endif							/* HERALD_FRAMES_H */
