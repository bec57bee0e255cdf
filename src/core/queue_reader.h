/*-------------------------------------------------------------------------
 *
 * queue_reader.h
 *	  Reading the queue from a listener's position: copy, validate, then use.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_QUEUE_READER_H
#define HERALD_QUEUE_READER_H

#include "queue.h"

typedef enum HeraldReadResult
{
	HERALD_READ_MESSAGE,		/* *message is the next one */
	HERALD_READ_END,			/* everything up to the end has been read */
	HERALD_READ_REFILLED,		/* a new chunk has been copied: call again */
	HERALD_READ_ROOM,			/* the buffer is too small: see room_needed */
	HERALD_READ_LAPPED,			/* the bytes were given to someone else: overrun */
	HERALD_READ_DAMAGED			/* the bytes are not what a sender writes */
} HeraldReadResult;

typedef struct HeraldMessage
{
	HeraldPosition batch;		/* position of its batch */
	int32_t		sender_pid;
	int64_t		commit_time;	/* microseconds, the server's timestamp epoch */
	HeraldPlace after;			/* where it ends */
	const HeraldEntry *entry;	/* in the reader's buffer, until the next call */
} HeraldMessage;

/*
 * Copy bytes of the queue that are no longer in the ring, from wherever they are
 * kept; within one segment.  False: they are gone.
 */
typedef bool (*HeraldReadSpilled) (HeraldPosition from, uint64_t length, char *to);

/* Copy bytes of the file that an entry names.  False: it is gone. */
typedef bool (*HeraldReadFile) (uint64_t file, uint64_t offset, uint64_t length, char *to);

/* Does the reader listen to that entry's channel, and did it when this batch was dispatched? */
typedef bool (*HeraldListensTo) (const HeraldEntry *entry, HeraldPosition batch);

/*
 * One pass over a stretch of the queue.  Segments that have nothing of the reader's
 * database are passed over without a look at their bytes, be they still there or not.
 *
 * The fields are the reader's own, but for `checkpoint`: the start of the batch that
 * is being read, which is where another pass can begin, and below which this one
 * needs nothing any more.
 */
typedef struct HeraldReader
{
	HeraldQueue  *queue;
	uint32_t	database;		/* batches for other databases are skipped */
	HeraldPosition end;			/* read no further; a border between batches */
	uint64_t	position;		/* next byte to look at: of the queue, or of `file` */
	HeraldPosition checkpoint;
	bool		in_batch;		/* position is inside `header`'s batch */
	HeraldBatchHeader header;
	uint64_t	entries_end;	/* of the batch's entries, where `position` is */
	bool		in_file;		/* ... which is not the queue, but this file */
	uint64_t	file;
	bool		expects_file;	/* the batch is a reference; its file comes last */
	bool		wants_file;		/* ... which has something for this reader */
	HeraldPlace begin;			/* in that batch, what comes before is left out */
	uint64_t	bytes_read;		/* in this pass */
	uint64_t	copied_from;	/* what the buffer holds */
	uint64_t	copied_to;
	HeraldReadSpilled read_spilled; /* NULL: what is not in the ring is gone */
	HeraldReadFile read_file;	/* NULL: what is in files is gone */
	HeraldListensTo listens_to;	/* NULL: to everything */
	char	   *buffer;			/* 8-aligned */
	size_t		buffer_size;	/* bytes, a multiple of 8, at least 64 */
	uint64_t	room_needed;	/* bytes, after HERALD_READ_ROOM */
} HeraldReader;

/*
 * Read from one position, where a batch begins, to another, which this process knows
 * from `dispatched` or `settled`: what is not published yet may be passed over.
 */
extern void herald_reader_begin(HeraldReader *reader, HeraldQueue *queue, uint32_t database,
								HeraldPosition from, HeraldPosition end,
								char *buffer, size_t buffer_size);

/*
 * What is not in the ring can be had by these functions.  A file that has nothing
 * for the reader is passed over; it may be gone, and nothing is missed.
 */
extern void herald_reader_use_spilled(HeraldReader *reader, HeraldReadSpilled read_spilled);
extern void herald_reader_use_files(HeraldReader *reader, HeraldReadFile read_file,
									HeraldListensTo listens_to);

/* The pass begins within its first batch, after so much of it. */
extern void herald_reader_begin_within(HeraldReader *reader, uint64_t offset);

/* Leave out what has not been read yet: the pass is at its end. */
extern void herald_reader_skip(HeraldReader *reader);

/* Go on in the same pass to an end further away, known in the same way. */
extern void herald_reader_extend(HeraldReader *reader, HeraldPosition end);

/* After HERALD_READ_ROOM: a larger buffer; what the old one held is copied again. */
extern void herald_reader_set_buffer(HeraldReader *reader, char *buffer, size_t buffer_size);

extern HeraldReadResult herald_reader_next(HeraldReader *reader, HeraldMessage *message);

/*
 * Copy bytes of the queue out, within one segment.  False if they were
 * overwritten, or might have been, while we copied [Q5].
 */
extern bool herald_queue_copy(HeraldQueue *queue, HeraldPosition from, uint64_t length, char *to);

#endif							/* HERALD_QUEUE_READER_H */
