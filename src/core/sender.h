/*-------------------------------------------------------------------------
 *
 * sender.h
 *	  The transaction that has sent notifications, as rows of herald.read() show it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SENDER_H
#define HERALD_SENDER_H

#include <stdint.h>

typedef struct HeraldSender
{
	uint64_t	xid;			/* its id, with the epoch; 0: it had none */
	uint32_t	role;			/* oid of the role that was its current user
								 * at the commit; 0: unknown */
} HeraldSender;

#endif							/* HERALD_SENDER_H */
