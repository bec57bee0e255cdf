/*-------------------------------------------------------------------------
 *
 * channel_map.h
 *	  Which backends listen to which channel.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CHANNEL_MAP_H
#define HERALD_CHANNEL_MAP_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "core/queue_layout.h"

/* A channel's name, and what it takes to find it. */
typedef struct HeraldChannelKey
{
	Oid			database;
	uint32		channel_hash;	/* herald_channels_hash() of the name */
	char		name[NAMEDATALEN];
} HeraldChannelKey;

/*
 * What has been sent on a channel since it has listeners: figures of monitoring, so no
 * order is asked of them.
 */
typedef struct HeraldChannelCounters
{
	_Atomic uint64 sent;		/* notifications */
	_Atomic uint64 delivered;	/* the same, each once for each listener whose client has it */
	_Atomic int64 last_sent;	/* commit time of the last, TimestampTz; 0: none */
	_Atomic int64 since;		/* TimestampTz: the others were zero then */
} HeraldChannelCounters;

/* One channel, as herald_channels_scan() shows it. */
typedef struct HeraldChannelInfo
{
	Oid			database;
	const char *name;
	uint32		count;			/* listeners */
	const uint32 *slots;		/* theirs */
	HeraldChannelCounters *counters;
} HeraldChannelInfo;

/* Called with a lock of the map held: must not throw.  False: enough was seen. */
typedef bool (*HeraldChannelVisitor) (const HeraldChannelInfo *channel, void *arg);

/* Bytes of herald_channel_area. */
extern Size herald_channels_memory_size(void);

/* Create the map in herald_channel_area.  By the postmaster, at start. */
extern void herald_channels_create(void);

/*
 * Attach this process to the map.  Once is enough, and it costs nothing later.
 * To be called where an error is allowed, before any other function here.
 */
extern void herald_channels_attach(void);

/*
 * The hash that a channel goes by in this file, in the queue and in the listener's
 * own table.  It is another one after the server's next start.
 */
extern uint32 herald_channels_hash(const char *channel, size_t length);

/*
 * Enter a listener, which must not be there yet.  Throws
 * ERRCODE_OUT_OF_MEMORY when herald.channel_memory is used up, with nothing
 * changed and no lock held.  Returns the channel's counters, which stay where they
 * are until that listener is taken out.
 */
extern HeraldChannelCounters *herald_channels_add(Oid database, const char *channel,
												  uint32 channel_hash, uint32 slot);

/*
 * So many subscriptions (a session and a channel) herald.channel_memory holds at
 * least, however the sessions share the channels.
 */
extern uint64 herald_channels_max(void);

/* Take a listener out.  Never fails; it need not be there. */
extern void herald_channels_remove(Oid database, const char *channel, uint32 channel_hash, uint32 slot);

/* The key of an entry's channel. */
extern void herald_channels_key(HeraldChannelKey *key, Oid database, const HeraldEntry *entry);

/* What marking has come to, of several channels. */
typedef struct HeraldChannelMarks
{
	uint64		looked_at;		/* listeners, each time */
	uint64		entered;		/* those that entered the wakeup set */
} HeraldChannelMarks;

/*
 * Mark the listeners of a channel: there is something for them in this batch.  Where this
 * has been done in the same run (HeraldRunBegins), by whichever process, it is enough.
 * Count so many notifications, the last of which is in the batch.  Returns how many
 * listeners there are, and adds to *marks.  By the dispatcher; never fails.
 */
extern uint32 herald_channels_mark(const HeraldChannelKey *key, const HeraldBatchHeader *header,
								   HeraldPosition run, uint64 notifications, HeraldChannelMarks *marks);

/* Count only; the last was committed at that time.  Never fails. */
extern void herald_channels_count(const HeraldChannelKey *key, uint64 notifications,
								  TimestampTz last_sent);

/* Visit channels, in no particular order, until the visitor has seen enough. */
extern void herald_channels_scan(HeraldChannelVisitor visitor, void *arg);

#endif							/* HERALD_CHANNEL_MAP_H */
