/*-------------------------------------------------------------------------
 *
 * queue_layout.h
 *	  What the bytes of the queue mean: batches, and the entries in them.
 *
 * The queue is an endless array of bytes; a position is a 64-bit offset into it
 * and always a multiple of 8.  One transaction's notifications are one batch:
 *
 *		+-----------------+---------+---------+-- - --+
 *		| batch header 32 | entry 0 | entry 1 |  ...  |
 *		+-----------------+---------+---------+-- - --+
 *
 * Each entry has a kind.  An ordinary one carries a notification as the body of
 * the protocol's NotificationResponse message (sender's pid in network order,
 * channel, payload, each with its NUL), so that a listener whose encoding is the
 * database's sends it on without looking into it.
 *
 * The notifications of a transaction that is too large for a segment are in a
 * file, and the queue has a reference to it: a batch whose last entry names the
 * file, and whose other entries name the channels.  If the channels are too many,
 * one entry stands for all listeners.
 *
 * A segment that has no room left for the next batch ends with a filler: one
 * word, at the position where the batch would have begun.  Every position is
 * a multiple of 8, so that a filler always has room.
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

/* An offset into the endless queue, in bytes; always a multiple of 8. */
typedef uint64_t HeraldPosition;

/*
 * A place between two notifications: the position of a batch, and how much of it comes
 * before; 0: nothing.  In bytes of the batch, or of its file if it is a reference.
 */
typedef struct HeraldPlace
{
	HeraldPosition position;
	uint64_t	offset;
} HeraldPlace;

#define HERALD_ALIGN			8
#define HERALD_ALIGN_UP(n)		(((n) + (HERALD_ALIGN - 1)) & ~(uint64_t) (HERALD_ALIGN - 1))

/*
 * The first word of a batch: its own position, with the state in the three
 * bits that alignment leaves free.  CLEAR is the whole word zero, which is no
 * batch's word, because the queue begins at a position above zero.
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
	int32_t		sender_pid;
	int64_t		commit_time;	/* microseconds, the server's timestamp epoch */
} HeraldBatchHeader;

static_assert(sizeof(HeraldBatchHeader) == 32, "batch header has padding");

/* Where the commit time stands, in words from the header's first. */
#define HERALD_HEADER_WORDS			(sizeof(HeraldBatchHeader) / HERALD_ALIGN)
#define HERALD_HEADER_COMMIT_TIME	(offsetof(HeraldBatchHeader, commit_time) / HERALD_ALIGN)

/*
 * What an entry is, and what is in its body.  A kind that is not among these is
 * damage; so is zero, which overwritten memory often holds.
 */
typedef enum HeraldEntryKind
{
	HERALD_ENTRY_NOTIFICATION = 1,	/* pid, channel, NUL, payload, NUL */
	HERALD_ENTRY_FILE = 2,		/* HeraldFileReference: listeners read on in that file */
	HERALD_ENTRY_CHANNEL = 3,	/* as a notification, with their number for the pid: a file
								 * follows with some on it */
	HERALD_ENTRY_ALL_LISTENERS = 4	/* nothing: a file follows for the whole database */
} HeraldEntryKind;

typedef struct HeraldEntry
{
	uint32_t	length;			/* whole entry in bytes, a multiple of 8 */
	uint32_t	channel_hash;	/* of the channel; which hash, the queue need not know */
	uint32_t	body_length;	/* bytes of body[] that mean something */
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

/* The length of a notification. */
static inline uint64_t
herald_entry_length(uint64_t channel_length, uint64_t payload_length)
{
	return HERALD_ALIGN_UP(sizeof(HeraldEntry) + HERALD_BODY_PID +
						   channel_length + 1 + payload_length + 1);
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

/* How many notifications the entry stands for, on its channel. */
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
 * Is the entry that begins here whole and well formed, given that `room` bytes
 * of its batch are left?  [Q4] No length is used before this has said yes.
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
	}
	return false;
}

/*
 * A hash of bytes; `seed` chains two of them.  FNV-1a: it is for tables of one
 * process, where bytes that were made up to have one hash slow down nobody else.
 */
static inline uint32_t
herald_hash(const char *bytes, size_t length, uint32_t seed)
{
	uint32_t	hash = seed ^ UINT32_C(2166136261);

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char) bytes[i]) * UINT32_C(16777619);

	/* FNV leaves its last byte in the low bits alone: spread it upwards. */
	hash ^= hash >> 15;
	hash *= UINT32_C(0x85ebca6b);
	return hash ^ (hash >> 13);
}

#endif							/* HERALD_QUEUE_LAYOUT_H */
