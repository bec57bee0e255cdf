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

/* The key of a channel: its name, database and hash. */
typedef struct HeraldChannelKey
{
	Oid			database;
	uint32		channel_hash;	/* herald_channel_hash() of the name */
	char		name[NAMEDATALEN];
} HeraldChannelKey;

/*
 * Counters of a channel since it has listeners.  For monitoring only, so memory order does not
 * matter.
 */
typedef struct HeraldChannelCounters
{
	_Atomic uint64 sent;		/* notifications */
	_Atomic uint64 delivered;	/* notifications sent to clients, once for
								 * each listener */
	_Atomic int64 last_sent;	/* commit time of the last one, TimestampTz;
								 * 0: none */
	_Atomic int64 since;		/* when the counters started at zero,
								 * TimestampTz */
} HeraldChannelCounters;

/* A channel, as passed to the visitor of herald_channels_scan(). */
typedef struct HeraldChannelInfo
{
	Oid			database;
	const char *name;
	uint32		count;			/* listeners */
	struct HeraldChannel *entry;	/* for herald_channels_count_listeners() */
	HeraldChannelCounters *counters;
} HeraldChannelInfo;

/* Called with a lock of the map held: must not throw.  False: stop the scan. */
typedef bool (*HeraldChannelVisitor) (const HeraldChannelInfo *channel, void *arg);

/* Bytes of herald_channel_area. */
extern Size herald_channels_memory_size(void);

/* Create the map in herald_channel_area.  By the postmaster, at start. */
extern void herald_channels_create(void);

/*
 * Attach this process to the map.  Further calls do nothing.  To be called where an error is
 * allowed, before any other function of this file.
 */
extern void herald_channels_attach(void);

/*
 * Enter a listener, which must not be in the map yet.  Throws ERRCODE_OUT_OF_MEMORY when
 * herald.channel_memory is full, with nothing changed and no lock held.  Returns the channel's
 * counters, which keep their address until this listener is removed.
 */
extern HeraldChannelCounters *herald_channels_add(Oid database, const char *channel,
												  uint32 channel_hash, uint32 slot);

/* Bytes of herald.channel_memory that listeners can take; and the most that one takes for a channel. */
extern Size herald_channels_room(void);
extern Size herald_channels_bytes_max(void);

/* Remove a listener, if it is in the map.  Never fails. */
extern void herald_channels_remove(Oid database, const char *channel, uint32 channel_hash, uint32 slot);

/* The key of an entry's channel. */
extern void herald_channels_key(HeraldChannelKey *key, Oid database, const HeraldEntry *entry);

/* Totals of marking the listeners of several channels. */
typedef struct HeraldChannelMarks
{
	uint64		looked_at;		/* listeners, counted each time they are
								 * marked */
	uint64		entered;		/* listeners that entered the wakeup set */
} HeraldChannelMarks;

/*
 * Mark the listeners of a channel, which has a message in this batch, unless any process has
 * marked them in the same stretch (HeraldStretchBegins).  Count `notifications` notifications, the
 * last of which is in the batch.  Returns the number of listeners, and adds to *marks.  By the
 * dispatcher; never fails.
 */
extern uint32 herald_channels_mark(const HeraldChannelKey *key, const HeraldBatchHeader *header,
								   HeraldPosition stretch, uint64 notifications, HeraldChannelMarks *marks);

/* Only count notifications; the last one was committed at last_sent.  Never fails. */
extern void herald_channels_count(const HeraldChannelKey *key, uint64 notifications,
								  TimestampTz last_sent);

/* Count a notification that pg_herald itself has sent to one listener of its own channel.  Never fails. */
extern void herald_channels_count_own(HeraldChannelCounters *counters);

/* Visit channels, in no particular order, until the visitor returns false. */
extern void herald_channels_scan(HeraldChannelVisitor visitor, void *arg);

/* By a visitor: the number of listeners whose slots count. */
extern uint32 herald_channels_count_listeners(const HeraldChannelInfo *channel,
											  bool (*counts) (uint32 slot, void *arg), void *arg);

#endif							/* HERALD_CHANNEL_MAP_H */
