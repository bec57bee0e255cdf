/*-------------------------------------------------------------------------
 *
 * frames.h
 *	  Notifications on their way to the client, many at a time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_FRAMES_H
#define HERALD_FRAMES_H

#include "postgres.h"

/* When the module is loaded. */
extern void herald_frames_init(void);

/* A pass begins. */
extern void herald_frames_begin(void);

/*
 * Another NotificationResponse, with this body.  The client is a real one
 * (DestRemote).  Before any other notification goes to it, or the pass ends,
 * herald_frames_send(); what an error that ends the connection leaves here has
 * not been sent.
 */
extern void herald_frames_add(const char *body, uint32 length);

/* Hand what was added to the server, which sends it when it flushes. */
extern void herald_frames_send(void);

/* A notification with a body of that many bytes is about to go to the server by itself. */
extern void herald_frames_expect(uint32 length);

/* Send what the server has, as far as the client takes it.  False: not all of it. */
extern bool herald_frames_go_out(void);

#endif							/* HERALD_FRAMES_H */
