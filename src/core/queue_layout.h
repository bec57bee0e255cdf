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
 * An entry carries its notification as the body of the protocol's
 * NotificationResponse message (sender's pid in network order, channel,
 * payload, each with its NUL), so that a listener whose encoding is the
 * database's sends it on without looking into it.
 *
 * What is too large for a segment is in a file, with a reference to it in the
 * queue: a batch whose first entry says which file (no channel; the payload is
 * its number and its length in bytes, in decimal), followed by an entry for
 * each of its channels, with no payload, for the dispatcher.  If those are too
 * many as well, one entry with neither channel nor payload stands for all.
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

/* An offset into the endless queue, in bytes; always a multiple of 8. */
typedef uint64_t HeraldPosition;

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
	HERALD_BATCH_FILLER = 4,	/* the queue goes on at the next segment */
	HERALD_BATCH_REFERENCE = 5	/* as COMMITTED, but its entries are in a file */
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

typedef struct HeraldEntry
{
	uint32_t	length;			/* whole entry in bytes, a multiple of 8 */
	uint32_t	channel_hash;	/* of the channel; which hash, the queue need not know */
	uint32_t	body_length;	/* bytes of body[] that mean something */
	uint32_t	channel_length; /* bytes, without the NUL */
	char		body[];			/* pid, channel, NUL, payload, NUL */
} HeraldEntry;

static_assert(sizeof(HeraldEntry) == 16, "entry header has padding");

/* The sender's pid at the head of a body, in bytes. */
#define HERALD_BODY_PID			4

/* The smallest entry there can be: an empty channel and an empty payload. */
#define HERALD_ENTRY_MIN		HERALD_ALIGN_UP(sizeof(HeraldEntry) + HERALD_BODY_PID + 2)

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

/* Bytes of the payload, without the NUL. */
static inline uint64_t
herald_entry_payload_length(const HeraldEntry *entry)
{
	return (uint64_t) entry->body_length - HERALD_BODY_PID - entry->channel_length - 2;
}

/* In a reference: does it concern every listener of the database? */
static inline bool
herald_entry_is_for_all(const HeraldEntry *entry)
{
	return entry->channel_length == 0 && herald_entry_payload_length(entry) == 0;
}

/*
 * Is the entry that begins here whole and well formed, given that `room` bytes
 * of its batch are left?  [Q4] No length is used before this has said yes.
 */
static inline bool
herald_entry_is_valid(const HeraldEntry *entry, uint64_t room)
{
	uint64_t	prefix;

	if (room < sizeof(HeraldEntry) ||
		entry->length < HERALD_ENTRY_MIN || entry->length > room ||
		entry->length % HERALD_ALIGN != 0)
		return false;
	prefix = HERALD_BODY_PID + (uint64_t) entry->channel_length + 1;
	return entry->body_length <= entry->length - sizeof(HeraldEntry) &&
		prefix < entry->body_length &&
		entry->body[prefix - 1] == '\0' &&
		entry->body[entry->body_length - 1] == '\0';
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
