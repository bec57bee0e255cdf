/*-------------------------------------------------------------------------
 *
 * queue_reader.h
 *	  Reads the queue from a listener's position: copy, validate, then use.
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
	HERALD_READ_REFILLED,		/* a new chunk was copied: call again */
	HERALD_READ_ROOM,			/* the buffer is too small: see room_needed */
	HERALD_READ_LAPPED,			/* the bytes were overwritten or deleted:
								 * overrun */
	HERALD_READ_DAMAGED			/* the bytes are not valid */
} HeraldReadResult;

typedef struct HeraldMessage
{
	HeraldSender sender;
	int64_t		commit_time;	/* microseconds, the server's timestamp epoch */
	HeraldCommitId commit;		/* of the batch; all zero: it is not in the
								 * WAL */
	HeraldPosition batch;		/* where its batch begins */
	const HeraldEntry *entry;	/* in the reader's buffer, until the next call */
} HeraldMessage;

/*
 * Copy bytes of the queue that are no longer in the ring, from where they were saved; within
 * one segment.  False: they no longer exist.
 */
typedef bool (*HeraldReadSpilled) (HeraldPosition from, uint64_t length, char *to);

/* Copy bytes of the file that an entry names.  False: the file no longer exists. */
typedef bool (*HeraldReadFile) (uint64_t file, uint64_t offset, uint64_t length, char *to);

/*
 * Does the reader listen to the entry's channel, and did it do so when this batch was
 * dispatched?
 */
typedef bool (*HeraldListensTo) (const HeraldEntry *entry, HeraldPosition batch);

/*
 * One pass over a range of the queue.  Segments without batches of the reader's database are
 * skipped unread, even if they no longer exist.
 *
 * Besides the messages, callers use `checkpoint`, the start of the batch that is being read:
 * another pass can begin there, and this pass needs nothing before it.
 */
typedef struct HeraldReader
{
	HeraldQueue *queue;
	uint32_t	database;		/* batches for other databases are skipped */
	HeraldPosition end;			/* where to stop reading; a border between
								 * batches */
	uint64_t	position;		/* next byte to read: of the queue, or of
								 * `file` */
	HeraldPosition checkpoint;
	bool		in_batch;		/* position is inside `header`'s batch */
	HeraldBatchHeader header;
	HeraldCommitId commit;		/* of that batch; all zero: none */
	uint64_t	entries_end;	/* end of the entries; in the queue or the
								 * file, as `position` */
	bool		in_file;		/* position is in `file`, not in the queue */
	uint64_t	file;
	bool		expects_file;	/* the batch is a reference; its file comes
								 * last */
	bool		wants_file;		/* ... and the file has notifications for this
								 * reader */
	uint64_t	bytes_read;		/* in this pass */
	uint64_t	copied_from;	/* the range of bytes in the buffer */
	uint64_t	copied_to;
	HeraldReadSpilled read_spilled; /* NULL: no bytes exist outside of the
									 * ring */
	HeraldReadFile read_file;	/* NULL: no files exist */
	HeraldListensTo listens_to; /* NULL: the reader listens to all channels */
	char	   *buffer;			/* 8-aligned */
	size_t		buffer_size;	/* bytes, a multiple of 8, at least 64 */
	uint64_t	room_needed;	/* bytes, after HERALD_READ_ROOM */
} HeraldReader;

/*
 * Read from `from`, where a batch begins, to `end`.  The caller must know `end` from
 * `dispatched` or `settled`: a segment may be skipped if its batches are not published yet.
 */
extern void herald_reader_begin(HeraldReader *reader, HeraldQueue *queue, uint32_t database,
								HeraldPosition from, HeraldPosition end,
								char *buffer, size_t buffer_size);

/*
 * Set the functions for bytes that are not in the ring.  A file that has nothing for the
 * reader is skipped; if it no longer exists, the reader misses nothing.
 */
extern void herald_reader_use_spilled(HeraldReader *reader, HeraldReadSpilled read_spilled);
extern void herald_reader_use_files(HeraldReader *reader, HeraldReadFile read_file,
									HeraldListensTo listens_to);

/* Skip the rest: the pass is at its end. */
extern void herald_reader_skip(HeraldReader *reader);

/* Continue the same pass to a later end, known as in herald_reader_begin(). */
extern void herald_reader_extend(HeraldReader *reader, HeraldPosition end);

/*
 * After HERALD_READ_ROOM: set a larger buffer; the contents of the old one are copied again.
 */
extern void herald_reader_set_buffer(HeraldReader *reader, char *buffer, size_t buffer_size);

extern HeraldReadResult herald_reader_next(HeraldReader *reader, HeraldMessage *message);

/* After a message: was it the last one of its batch?  Then the batch ends at the returned position; else 0. */
static inline HeraldPosition
herald_reader_batch_end(const HeraldReader *reader)
{
	return reader->position == reader->entries_end && !reader->expects_file ?
		reader->checkpoint + reader->header.length : 0;
}

/*
 * Copy bytes of the queue out, within one segment.  False if they were
 * overwritten, or might have been, while we copied.
 */
extern bool herald_queue_copy(HeraldQueue *queue, HeraldPosition from, uint64_t length, char *to);

#endif							/* HERALD_QUEUE_READER_H */
