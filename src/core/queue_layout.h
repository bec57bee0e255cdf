/*-------------------------------------------------------------------------
 *
 * queue_layout.h
 *	  The layout of the queue: batches, and the entries in them.
 *
 * The queue is an endless array of bytes; a position is a 64-bit offset into it
 * and always a multiple of 8.  One transaction's notifications are one batch:
 *
 *		+-----------------+---------+---------+-- - --+
 *		| batch header 40 | entry 0 | entry 1 |  ...  |
 *		+-----------------+---------+---------+-- - --+
 *
 * Each entry has a kind.  An ordinary one carries a notification as the body of the protocol's
 * NotificationResponse message (sender's pid in network order, channel, payload, each with its
 * NUL), so that a listener whose client encoding is the database's encoding forwards it
 * unchanged.
 *
 * The notifications of a transaction that is too large for a segment are in a file, and the
 * queue has a reference to it: a batch whose last entry names the file, and whose other
 * entries name the channels.  If there are too many channels, one entry stands for all
 * listeners.
 *
 * A batch with notifications that are also in the WAL begins with an entry that says where: a
 * reader passes it on with each notification of the batch.
 *
 * A segment with no room for the next batch ends with a filler: one word, at the position
 * where the batch would have begun.  Every position is a multiple of 8, so there is always
 * room for a filler.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_QUEUE_LAYOUT_H
#define HERALD_QUEUE_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "commit_id.h"
#include "sender.h"

/* An offset into the endless queue, in bytes; always a multiple of 8. */
typedef uint64_t HeraldPosition;

#define HERALD_ALIGN			8
#define HERALD_ALIGN_UP(n)		(((n) + (HERALD_ALIGN - 1)) & ~(uint64_t) (HERALD_ALIGN - 1))

/*
 * The first word of a batch: its own position, with the state in the three bits that alignment
 * leaves free.  CLEAR means that the whole word is zero; no batch has this word, because the
 * queue begins at a position above zero.
 */
typedef enum HeraldBatchState
{
	HERALD_BATCH_CLEAR = 0,		/* nothing has been written here yet */
	HERALD_BATCH_RESERVED = 1,	/* its transaction is still committing */
	HERALD_BATCH_COMMITTED = 2, /* visible: may be dispatched */
	HERALD_BATCH_ABORTED = 3,	/* to be skipped */
	HERALD_BATCH_FILLER = 4		/* the queue goes on at the next segment */
} HeraldBatchState;

#define HERALD_STATE_MASK		((uint64_t) (HERALD_ALIGN - 1))

static inline uint64_t
herald_word_make(HeraldPosition position, unsigned state)
{
	return position | state;
}

static inline HeraldPosition
herald_word_position(uint64_t word)
{
	return word & ~HERALD_STATE_MASK;
}

static inline unsigned
herald_word_state(uint64_t word)
{
	return (unsigned) (word & HERALD_STATE_MASK);
}

typedef struct HeraldBatchHeader
{
	uint64_t	word;			/* position and HeraldBatchState */
	uint32_t	length;			/* whole batch in bytes, header included */
	uint32_t	count;			/* entries */
	uint32_t	database;		/* oid: listeners elsewhere skip the batch */
	uint32_t	role;			/* the sender's: HeraldSender */
	int64_t		commit_time;	/* microseconds, the server's timestamp epoch */
	uint64_t	xid;			/* the sender's, when the batch is committed */
} HeraldBatchHeader;

static_assert(sizeof(HeraldBatchHeader) == 40, "batch header has padding");

/* Indexes of the commit time and of the xid, in words from the start of the header. */
#define HERALD_HEADER_WORDS			(sizeof(HeraldBatchHeader) / HERALD_ALIGN)
#define HERALD_HEADER_COMMIT_TIME	(offsetof(HeraldBatchHeader, commit_time) / HERALD_ALIGN)
#define HERALD_HEADER_XID			(offsetof(HeraldBatchHeader, xid) / HERALD_ALIGN)

/*
 * The kind of an entry, and the contents of its body.  Any other value is damage, including
 * zero, which overwritten memory often contains.
 */
typedef enum HeraldEntryKind
{
	HERALD_ENTRY_NOTIFICATION = 1,	/* pid, channel, NUL, payload, NUL */
	HERALD_ENTRY_FILE = 2,		/* HeraldFileReference: listeners read on in
								 * that file */
	HERALD_ENTRY_CHANNEL = 3,	/* as a notification, with their number in
								 * place of the pid: a file with some on this
								 * channel follows */
	HERALD_ENTRY_ALL_LISTENERS = 4, /* empty: a file follows for the whole
									 * database */
	HERALD_ENTRY_COMMIT = 5		/* HeraldCommitId: the batch is in the WAL;
								 * first in its batch, and no notification */
} HeraldEntryKind;

typedef struct HeraldEntry
{
	uint32_t	length;			/* whole entry in bytes, a multiple of 8 */
	uint32_t	channel_hash;	/* of the channel; the queue does not depend
								 * on the hash function */
	uint32_t	body_length;	/* bytes of body[] in use */
	uint16_t	channel_length; /* bytes, without the NUL */
	uint16_t	kind;			/* HeraldEntryKind */
	char		body[];
} HeraldEntry;

static_assert(sizeof(HeraldEntry) == 16, "entry header has padding");

/* The sender's pid at the head of a body, in bytes. */
#define HERALD_BODY_PID			4

/* A file with entries: its number, and its length in bytes. */
typedef struct HeraldFileReference
{
	uint64_t	number;
	uint64_t	length;
} HeraldFileReference;

/* Bytes of an entry about a commit, whose end is 0 until herald_queue_set_commit_end(). */
#define HERALD_COMMIT_LENGTH	(sizeof(HeraldEntry) + sizeof(HeraldCommitId))

static_assert(HERALD_COMMIT_LENGTH % HERALD_ALIGN == 0, "an entry's length is aligned");

/* The length of a notification. */
static inline uint64_t
herald_entry_length(uint64_t channel_length, uint64_t payload_length)
{
	return HERALD_ALIGN_UP(sizeof(HeraldEntry) + HERALD_BODY_PID +
						   channel_length + 1 + payload_length + 1);
}

/* The pid of a notification's sender. */
static inline int32_t
herald_entry_pid(const HeraldEntry *entry)
{
	uint32_t	pid = 0;

	for (int i = 0; i < HERALD_BODY_PID; i++)
		pid = pid << 8 | (unsigned char) entry->body[i];
	return (int32_t) pid;
}

static inline const char *
herald_entry_channel(const HeraldEntry *entry)
{
	return entry->body + HERALD_BODY_PID;
}

static inline const char *
herald_entry_payload(const HeraldEntry *entry)
{
	return entry->body + HERALD_BODY_PID + entry->channel_length + 1;
}

/* The number of notifications that the entry stands for, on its channel. */
static inline uint32_t
herald_entry_notifications(const HeraldEntry *entry)
{
	uint32_t	notifications = 1;

	if (entry->kind == HERALD_ENTRY_CHANNEL)
		memcpy(&notifications, entry->body, sizeof(notifications));
	return notifications;
}

/* Bytes of the payload, without the NUL. */
static inline uint64_t
herald_entry_payload_length(const HeraldEntry *entry)
{
	return (uint64_t) entry->body_length - HERALD_BODY_PID - entry->channel_length - 2;
}

static inline HeraldFileReference
herald_entry_file(const HeraldEntry *entry)
{
	HeraldFileReference file;

	memcpy(&file, entry->body, sizeof(file));
	return file;
}

static inline HeraldCommitId
herald_entry_commit(const HeraldEntry *entry)
{
	HeraldCommitId commit;

	memcpy(&commit, entry->body, sizeof(commit));
	return commit;
}

/* Do a channel and a payload fill the body, each with its NUL? */
static inline bool
herald_entry_has_strings(const HeraldEntry *entry)
{
	uint64_t	prefix = HERALD_BODY_PID + (uint64_t) entry->channel_length + 1;

	return prefix < entry->body_length &&
		entry->body[prefix - 1] == '\0' &&
		entry->body[entry->body_length - 1] == '\0';
}

/*
 * Is the entry complete and well formed, given that `room` bytes of its batch are left?
 * No length is used before this returns true.
 */
static inline bool
herald_entry_is_valid(const HeraldEntry *entry, uint64_t room)
{
	if (room < sizeof(HeraldEntry) ||
		entry->length < sizeof(HeraldEntry) || entry->length > room ||
		entry->length % HERALD_ALIGN != 0 ||
		entry->body_length > entry->length - sizeof(HeraldEntry))
		return false;
	switch ((HeraldEntryKind) entry->kind)
	{
		case HERALD_ENTRY_NOTIFICATION:
		case HERALD_ENTRY_CHANNEL:
			return herald_entry_has_strings(entry);
		case HERALD_ENTRY_FILE:
			return entry->body_length == sizeof(HeraldFileReference);
		case HERALD_ENTRY_ALL_LISTENERS:
			return entry->body_length == 0;
		case HERALD_ENTRY_COMMIT:
			return entry->body_length == sizeof(HeraldCommitId);
	}
	return false;
}

/*
 * A hash of bytes; `seed` chains two of them.  FNV-1a is enough: it is used for tables of one
 * process, where colliding keys that a user made up slow down only that process.
 */
static inline uint32_t
herald_hash(const char *bytes, size_t length, uint32_t seed)
{
	uint32_t	hash = seed ^ UINT32_C(2166136261);

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char) bytes[i]) * UINT32_C(16777619);

	/* In FNV the last byte affects only the low bits: spread it upwards. */
	hash ^= hash >> 15;
	hash *= UINT32_C(0x85ebca6b);
	return hash ^ (hash >> 13);
}

/*
 * Multiply by 2^32 divided by the golden ratio: the upper bits of the result depend on all bits
 * of the number, and differ for neighbours (Knuth, The Art of Computer Programming, volume 3,
 * 6.4).
 */
static inline uint32_t
herald_spread(uint32_t number)
{
	return number * UINT32_C(2654435769);
}

#endif							/* HERALD_QUEUE_LAYOUT_H */
