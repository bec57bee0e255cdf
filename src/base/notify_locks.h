/*-------------------------------------------------------------------------
 *
 * notify_locks.h
 *	  The heavyweight lock of the server's own NOTIFY, and ours.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_NOTIFY_LOCKS_H
#define HERALD_NOTIFY_LOCKS_H

#include "postgres.h"

#include "catalog/pg_database.h"
#include "storage/lock.h"

/* Numbers of locks in "database 0", where no user can lock anything. */
typedef enum HeraldNotifyLock
{
	HERALD_LOCK_SERVER = 0,		/* PreCommit_Notify() takes it */
	HERALD_LOCK_ROOM = 1,		/* these two: notify/sender/admission.c */
	HERALD_LOCK_LARGE = 2,
	HERALD_LOCK_SETTINGS = 3	/* for each database:
								 * notify/settings/channel_settings.c */
} HeraldNotifyLock;

/*
 * During recovery the server lets no process take a strong lock on an object; so ours are
 * advisory locks, which sessions take only for their own database.
 */
static inline LOCKTAG
herald_notify_lock(HeraldNotifyLock number)
{
	LOCKTAG		tag;

	if (number == HERALD_LOCK_SERVER)
		SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, InvalidOid, number);
	else
		SET_LOCKTAG_ADVISORY(tag, InvalidOid, DatabaseRelationId, InvalidOid, number);
	return tag;
}

/* `database`: the number of its entry (base/database.h). */
static inline LOCKTAG
herald_settings_lock(uint32 database)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, InvalidOid, DatabaseRelationId, database, HERALD_LOCK_SETTINGS);
	return tag;
}

#endif							/* HERALD_NOTIFY_LOCKS_H */
