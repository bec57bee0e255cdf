/*-------------------------------------------------------------------------
 *
 * actions.h
 *	  The LISTENs and UNLISTENs of this transaction, in order, until they take effect.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ACTIONS_H
#define HERALD_ACTIONS_H

#include "postgres.h"

#include "core/queue_layout.h"

typedef enum HeraldActionKind
{
	HERALD_ACTION_LISTEN,
	HERALD_ACTION_UNLISTEN,
	HERALD_ACTION_UNLISTEN_ALL
} HeraldActionKind;

typedef struct HeraldAction
{
	HeraldActionKind kind;

	/* Of a LISTEN that resumes; else 0. */
	HeraldPosition after;
	uint32		bypasses;		/* number of bypasses in its token, or in its
								 * cut */
	bool		logged;			/* the channel is */
	bool		has_past;		/* the history comes before `after` */

	char		channel[NAMEDATALEN];
} HeraldAction;

/* Add one.  May throw. */
extern void herald_actions_add(HeraldActionKind kind, const char *channel);

/* The current subtransaction was committed, or rolled back. */
extern void herald_actions_subcommit(void);
extern void herald_actions_subabort(void);

/* The transaction is over, either way.  Never fails. */
extern void herald_actions_reset(void);

/* Their number; the action with an index below it, in order. */
extern int	herald_actions_count(void);
extern const HeraldAction *herald_actions_get(int index);

/* The latest action for the channel, if that is a LISTEN; else NULL. */
extern HeraldAction *herald_actions_find_listen(const char *channel);

/* listens: is there a LISTEN among them?  Else: is there an UNLISTEN or UNLISTEN *? */
extern bool herald_actions_any(bool listens);

/* Does a LISTEN among them begin with what a cursor reads from the WAL? */
extern bool herald_actions_any_past(void);

/* The index of the last UNLISTEN *; 0: there is none, or it is the first. */
extern int	herald_actions_last_unlisten_all(void);

#endif							/* HERALD_ACTIONS_H */
