/*-------------------------------------------------------------------------
 *
 * queue_reader.c
 *	  Reads the queue from a listener's position: copy, validate, then use.
 *
 * A listener copies a chunk of the queue into its own memory, checks that the chunk was not
 * overwritten meanwhile, and only then parses it.  So it pins no memory of the queue while it
 * sends to its client, and a length cannot change between the check and the use.
 *
 * A chunk ends where the buffer, the segment or the range to be read ends.  That may be in the
 * middle of a batch or an entry; then the next chunk begins with that entry.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "queue_reader.h"

#include <string.h>

#include "segment_databases.h"

static HeraldReadResult refill(HeraldReader *reader, uint64_t needed);
static HeraldReadResult enter_batch(HeraldReader *reader);
static HeraldReadResult next_entry(HeraldReader *reader, HeraldMessage *message);
static bool note_commit(HeraldReader *reader, const HeraldMessage *message);
static bool follow_reference(HeraldReader *reader, const HeraldEntry *entry);
static bool enter_file(HeraldReader *reader, const HeraldEntry *entry);
static void leave_batch(HeraldReader *reader, HeraldPosition next);
static bool copy_from_queue(HeraldReader *reader, uint64_t length);
static bool is_copied(const HeraldReader *reader, uint64_t length);


bool
herald_queue_copy(HeraldQueue *queue, HeraldPosition from, uint64_t length, char *to)
{
	_Atomic uint64_t *words = herald_queue_at(queue, from);

	/* [F1] acquire, here and at the end: pairs with herald_queue_recycle(). */
	if (from < atomic_load_explicit(&queue->tail, memory_order_acquire))
		return false;
	for (uint64_t i = 0; i < length / HERALD_ALIGN; i++)
	{
		/*
		 * [L3] acquire: pairs with the releases in herald_queue_fill() and
		 * zero().  If one of these words belongs to a later lap, the load of
		 * the tail below finds the tail already past us.
		 */
		uint64_t	word = atomic_load_explicit(&words[i], memory_order_acquire);

		memcpy(to + i * HERALD_ALIGN, &word, HERALD_ALIGN);
	}
	return from >= atomic_load_explicit(&queue->tail, memory_order_acquire);
}

void
herald_reader_begin(HeraldReader *reader, HeraldQueue *queue, uint32_t database,
					HeraldPosition from, HeraldPosition end,
					char *buffer, size_t buffer_size)
{
	memset(reader, 0, sizeof(*reader));
	reader->queue = queue;
	reader->database = database;
	reader->end = end;
	reader->position = from;
	reader->checkpoint = from;
	reader->copied_from = reader->copied_to = from;
	reader->buffer = buffer;
	reader->buffer_size = buffer_size;
}

void
herald_reader_use_spilled(HeraldReader *reader, HeraldReadSpilled read_spilled)
{
	reader->read_spilled = read_spilled;
}

void
herald_reader_use_files(HeraldReader *reader, HeraldReadFile read_file,
						HeraldListensTo listens_to)
{
	reader->read_file = read_file;
	reader->listens_to = listens_to;
}

void
herald_reader_skip(HeraldReader *reader)
{
	leave_batch(reader, reader->end);
}

void
herald_reader_extend(HeraldReader *reader, HeraldPosition end)
{
	assert(end >= reader->end);
	reader->end = end;
}

void
herald_reader_set_buffer(HeraldReader *reader, char *buffer, size_t buffer_size)
{
	reader->buffer = buffer;
	reader->buffer_size = buffer_size;
	reader->copied_from = reader->copied_to = reader->position;
}

HeraldReadResult
herald_reader_next(HeraldReader *reader, HeraldMessage *message)
{
	for (;;)
	{
		HeraldReadResult result;

		if (reader->in_batch)
		{
			if (reader->position < reader->entries_end)
			{
				result = next_entry(reader, message);
				if (result != HERALD_READ_MESSAGE ||
					message->entry->kind == HERALD_ENTRY_NOTIFICATION)
					return result;
				if (message->entry->kind == HERALD_ENTRY_COMMIT ? !note_commit(reader, message) :
					!follow_reference(reader, message->entry))
					return HERALD_READ_DAMAGED;
				continue;
			}
			if (reader->expects_file)
				return HERALD_READ_DAMAGED;
			leave_batch(reader, reader->checkpoint + reader->header.length);
		}
		if (reader->position >= reader->end)
			return HERALD_READ_END;

		result = enter_batch(reader);
		if (result != HERALD_READ_MESSAGE)
			return result;
	}
}

/*
 * Read the word at our position, and enter its batch, or skip the batch if it is not for us.
 * Returns HERALD_READ_MESSAGE when there is nothing to report.
 */
static HeraldReadResult
enter_batch(HeraldReader *reader)
{
	HeraldPosition at = reader->position;
	HeraldPosition border = herald_queue_next_segment(reader->queue, at);
	HeraldBatchHeader *header = &reader->header;
	uint64_t	word;

	if (!is_copied(reader, sizeof(word)))
	{
		if (herald_segment_may_have(reader->queue, at, reader->database))
			return refill(reader, sizeof(word));
		leave_batch(reader, border < reader->end ? border : reader->end);
		return HERALD_READ_MESSAGE;
	}
	memcpy(&word, reader->buffer + (at - reader->copied_from), sizeof(word));

	if (word == herald_word_make(at, HERALD_BATCH_FILLER))
	{
		if (border > reader->end)
			return HERALD_READ_DAMAGED;
		leave_batch(reader, border);
		return HERALD_READ_MESSAGE;
	}
	if (word != herald_word_make(at, HERALD_BATCH_COMMITTED) &&
		word != herald_word_make(at, HERALD_BATCH_ABORTED))
		return HERALD_READ_DAMAGED;

	if (!is_copied(reader, sizeof(*header)))
	{
		if (at + sizeof(*header) > border)
			return HERALD_READ_DAMAGED;
		return refill(reader, sizeof(*header));
	}
	memcpy(header, reader->buffer + (at - reader->copied_from), sizeof(*header));
	if (header->length < sizeof(*header) || header->length % HERALD_ALIGN != 0 ||
		header->length > border - at || header->length > reader->end - at)
		return HERALD_READ_DAMAGED;

	if (herald_word_state(word) == HERALD_BATCH_ABORTED ||
		header->database != reader->database)
		leave_batch(reader, at + header->length);
	else
	{
		reader->in_batch = true;
		memset(&reader->commit, 0, sizeof(reader->commit));
		reader->position = at + sizeof(*header);
		reader->entries_end = at + header->length;
	}
	return HERALD_READ_MESSAGE;
}

static HeraldReadResult
next_entry(HeraldReader *reader, HeraldMessage *message)
{
	uint64_t	room = reader->entries_end - reader->position;
	const HeraldEntry *entry;

	if (room < sizeof(*entry))
		return HERALD_READ_DAMAGED;
	if (!is_copied(reader, sizeof(*entry)))
		return refill(reader, sizeof(*entry));
	entry = (const HeraldEntry *) (reader->buffer + (reader->position - reader->copied_from));

	/*
	 * Check the length first: it determines how many bytes must be copied
	 * before the rest is used.
	 */
	if (entry->length < sizeof(*entry) || entry->length > room)
		return HERALD_READ_DAMAGED;
	if (!is_copied(reader, entry->length))
		return refill(reader, entry->length);
	if (!herald_entry_is_valid(entry, room))
		return HERALD_READ_DAMAGED;

	reader->position += entry->length;
	message->batch = reader->checkpoint;
	message->sender.xid = reader->header.xid;
	message->sender.role = reader->header.role;
	message->commit_time = reader->header.commit_time;
	message->commit = reader->commit;
	message->entry = entry;
	return HERALD_READ_MESSAGE;
}

/* False: the entry is not the first of its batch. */
static bool
note_commit(HeraldReader *reader, const HeraldMessage *message)
{
	if (reader->in_file || reader->position != reader->checkpoint + sizeof(HeraldBatchHeader) + message->entry->length)
		return false;
	reader->commit = herald_entry_commit(message->entry);
	return true;
}

/*
 * A reference has entries for channels or for all listeners first, and then one for the file.
 * False: the entry is out of place, or is itself in a file.
 */
static bool
follow_reference(HeraldReader *reader, const HeraldEntry *entry)
{
	if (reader->in_file)
		return false;
	switch ((HeraldEntryKind) entry->kind)
	{
		case HERALD_ENTRY_CHANNEL:
			if (reader->listens_to == NULL || reader->listens_to(entry, reader->checkpoint))
				reader->wants_file = true;
			break;
		case HERALD_ENTRY_ALL_LISTENERS:
			reader->wants_file = true;
			break;
		case HERALD_ENTRY_FILE:
			return enter_file(reader, entry);
		case HERALD_ENTRY_NOTIFICATION:
		case HERALD_ENTRY_COMMIT:
			return false;
	}
	reader->expects_file = true;
	return true;
}

static bool
enter_file(HeraldReader *reader, const HeraldEntry *entry)
{
	HeraldFileReference file = herald_entry_file(entry);

	if (!reader->expects_file || file.length % HERALD_ALIGN != 0)
		return false;
	reader->expects_file = false;
	if (!reader->wants_file)
		return true;

	reader->in_file = true;
	reader->file = file.number;
	reader->position = 0;
	reader->entries_end = file.length;
	reader->copied_from = reader->copied_to = reader->position;
	return true;
}

static void
leave_batch(HeraldReader *reader, HeraldPosition next)
{
	reader->in_batch = false;
	reader->expects_file = reader->wants_file = false;
	reader->position = next;
	reader->checkpoint = next;
	if (reader->in_file)
	{
		reader->in_file = false;
		reader->copied_from = reader->copied_to = next;
	}
}

static bool
is_copied(const HeraldReader *reader, uint64_t length)
{
	return reader->position >= reader->copied_from &&
		reader->position + length <= reader->copied_to;
}

/* Copy the next chunk, from our position on; at least `needed` bytes. */
static HeraldReadResult
refill(HeraldReader *reader, uint64_t needed)
{
	uint64_t	stop = reader->entries_end;
	bool		success;

	if (needed > reader->buffer_size)
	{
		reader->room_needed = needed;
		return HERALD_READ_ROOM;
	}
	if (!reader->in_file)
	{
		stop = herald_queue_next_segment(reader->queue, reader->position);
		if (stop > reader->end)
			stop = reader->end;
	}
	if (stop > reader->position + reader->buffer_size)
		stop = reader->position + reader->buffer_size;
	if (stop < reader->position + needed)
		return HERALD_READ_DAMAGED;

	if (reader->in_file)
		success = reader->read_file &&
			reader->read_file(reader->file, reader->position, stop - reader->position,
							  reader->buffer);
	else
		success = copy_from_queue(reader, stop - reader->position);
	if (!success)
		return HERALD_READ_LAPPED;

	reader->bytes_read += stop - reader->position;
	reader->copied_from = reader->position;
	reader->copied_to = stop;
	return HERALD_READ_REFILLED;
}

static bool
copy_from_queue(HeraldReader *reader, uint64_t length)
{
	return herald_queue_copy(reader->queue, reader->position, length, reader->buffer) ||
		(reader->read_spilled &&
		 reader->read_spilled(reader->position, length, reader->buffer));
}
