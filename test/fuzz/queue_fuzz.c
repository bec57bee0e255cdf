/*-------------------------------------------------------------------------
 *
 * queue_fuzz.c
 *	  Fuzzes the readers of the queue, for libFuzzer.
 *
 * The input is a small program.  Its operations write a queue as senders do,
 * with segments that were saved elsewhere and transactions in files; damage
 * what was written; and read it as a listener does.
 *
 * As long as nothing was damaged, the reader has to find each message, in
 * order.  Afterwards it may report damage, or that something is gone; but it
 * must terminate, must not use a length that leads out of its buffer, and must
 * not ask for more memory than there can be data.  The same holds for the
 * dispatcher.
 *
 * The ring is far smaller than a server's: most accesses are near a
 * border.  All memory is allocated to the byte, for the address sanitizer.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "input.h"
#include "sequencer.h"
#include "queue_reader.h"

#include "../unit/entry.h"

#define SEGMENT_BYTES	512
#define RING_BYTES		(HERALD_SEGMENTS * SEGMENT_BYTES)
#define BUFFER_MIN		64
#define BUFFER_MAX		1024

/* Limits of one program. */
#define SAVED_MAX		64		/* segments */
#define FILES_MAX		8
#define FILE_ENTRIES_MAX 32
#define BATCHES_MAX		1024
#define MESSAGES_MAX	8192
#define STEPS_MAX		100000

#define DATABASE		5u		/* the listener's */
#define OTHER_DATABASE	6u
#define BUDGET_ALL		UINT64_MAX
#define RAW_MAX			200

typedef enum Operation
{
	OP_BATCH,
	OP_BATCH_AGAIN,				/* the same operation, so that it is more frequent */
	OP_FILE,
	OP_SPILL,
	OP_READ,
	OP_RAW_BATCH,
	OP_RAW_REFERENCE,
	OP_RAW_FILE,
	OP_DAMAGE_BATCH,
	OP_DAMAGE_BATCH_AGAIN,
	OP_DAMAGE_LOG,
	OP_DAMAGE_FILE,
	OP_REMOVE_SEGMENT,
	OP_REMOVE_FILE,
	OPERATIONS
} Operation;

typedef struct Bytes
{
	char	   *at;				/* NULL if deleted */
	uint64_t	length;
} Bytes;

static HeraldQueue *log_;
static Bytes saved[SAVED_MAX];	/* one for each segment since the start */
static int	saved_count;
static Bytes files[FILES_MAX];	/* file number n is files[n - 1] */
static int	files_count;
static HeraldPosition batches[BATCHES_MAX];
static int	batches_count;
static bool damaged;			/* the data has been changed after it was written */
static bool removed;			/* a segment or file was deleted */
static int	sent;				/* number of messages, if nothing was damaged */
static HeraldCommitId sent_commits[MESSAGES_MAX];	/* of each message */
static HeraldMessage last_heard;
static int	heard;
static int	steps;
static HeraldReader reader;
static volatile unsigned touched;


/* ---- the input ---- */

static uint32_t
next_word(void)
{
	static const uint32_t telling[] = {
		0, 1, 4, 5, 7, 8, 9, 16, 23, 24, 25, 31, 32, 33, 40, 64, SEGMENT_BYTES - 8, SEGMENT_BYTES,
		SEGMENT_BYTES + 8, RING_BYTES, 0x7fffffff, 0x80000000, 0xfffffff0, 0xfffffff8, 0xffffffff
	};
	unsigned	choice = next_byte();

	if (choice < LENGTH_OF(telling))
		return telling[choice];
	if (choice < 128)
		return choice * HERALD_ALIGN;
	return (uint32_t) next_number(sizeof(uint32_t));
}

/* ---- writing, as senders do ---- */

static void
begin_log(void)
{
	HeraldPosition start = RING_BYTES;

	log_ = aligned_alloc(HERALD_CACHE_LINE, sizeof(HeraldQueue) + RING_BYTES);
	memset((void *) log_, 0, sizeof(HeraldQueue) + RING_BYTES);
	log_->ring_size = RING_BYTES;
	log_->segment_size = SEGMENT_BYTES;
	atomic_init(&log_->head, start);
	atomic_init(&log_->tail, start);
	atomic_init(&log_->limit, start + RING_BYTES);
	atomic_init(&log_->dispatched, start);
	atomic_init(&log_->settled, start);
}

/* An entry whose payload is a number and `more` times x. */
static uint64_t
write_numbered(char *to, int number, unsigned more)
{
	char		payload[320];
	int			length = snprintf(payload, sizeof(payload), "%d ", number);

	memset(payload + length, 'x', more);
	return entry_write(to, "channel", payload, length + more);
}

/* Now and then, write the entry that says where the batch is in the WAL; note the commit of the next messages. */
static uint64_t
write_commit(char *to, unsigned flags, int messages)
{
	uint64_t	number = (uint64_t) sent;
	HeraldCommitId commit = {0};

	if (flags % 2)
		commit = (HeraldCommitId) {number + 1, number + 2, number + 3};
	for (int i = sent; i < sent + messages; i++)
		sent_commits[i] = commit;
	return flags % 2 ? entry_write_commit(to, commit.run, commit.place) : 0;
}

/* Store the commit's end, if there is a place for it, and finish the batch. */
static void
commit_batch(HeraldPosition position, int first_message)
{
	herald_queue_set_commit_end(log_, position, (uint64_t) first_message + 3);
	herald_queue_commit(log_, position, 1, 1);
}

/* Read all that a dispatcher, or a reader, uses of an entry. */
static void
touch_entry(const HeraldEntry *entry)
{
	switch ((HeraldEntryKind) entry->kind)
	{
		case HERALD_ENTRY_NOTIFICATION:
		case HERALD_ENTRY_CHANNEL:
			must(HERALD_BODY_PID + 1u + entry->channel_length < entry->body_length, "an entry has both of its strings");
			touched += (unsigned) (strlen(herald_entry_channel(entry)) +
								   strlen(herald_entry_payload(entry)));
			touched += herald_hash(herald_entry_channel(entry), entry->channel_length + 1u, 0);
			break;
		case HERALD_ENTRY_FILE:
			must(entry->body_length == sizeof(HeraldFileReference), "an entry names its file in full");
			touched += (unsigned) herald_entry_file(entry).number;
			break;
		case HERALD_ENTRY_COMMIT:
			must(entry->body_length == sizeof(HeraldCommitId), "a commit is there in full");
			touched += (unsigned) herald_entry_commit(entry).run;
			break;
		case HERALD_ENTRY_ALL_LISTENERS:
			break;
	}
	for (uint32_t i = 0; i < entry->body_length; i++)
		touched += (unsigned char) entry->body[i];
}

static uint64_t
mark_batch(const HeraldBatchHeader *header, uint32_t *offset, uint64_t budget, void *arg)
{
	const char *at = (const char *) (header + 1);
	const char *end = (const char *) header + header->length;

	(void) budget;
	(void) arg;
	must(*offset == sizeof(*header), "a batch that is marked at once begins after its header");
	*offset = header->length;
	must(((const char *) header - (const char *) log_->ring) % SEGMENT_BYTES + header->length <= SEGMENT_BYTES,
		 "a batch that is marked lies within a segment");
	while (at < end)
	{
		const HeraldEntry *entry = (const HeraldEntry *) at;

		if (!herald_entry_is_valid(entry, end - at))
			break;
		touch_entry(entry);
		at += entry->length;
	}
	return header->length;
}

static void
stretch_begins(HeraldPosition end, void *arg)
{
	(void) end;
	(void) arg;
}

static void
dispatch(void)
{
	const HeraldSequencerCalls calls = {.stretch_begins = stretch_begins,.mark_batch = mark_batch};
	HeraldSequencerResult result = herald_sequencer_run(log_, BUDGET_ALL, &calls);

	must(result == HERALD_SEQUENCER_DONE || (damaged && result == HERALD_SEQUENCER_DAMAGED),
		 "a queue that was not damaged can be dispatched");
	must(atomic_load(&log_->dispatched) <= atomic_load(&log_->head), "nothing beyond the head is dispatched");
	must(atomic_load(&log_->settled) == atomic_load(&log_->dispatched), "what is dispatched is settled");
}

/* Save the oldest segment elsewhere, as the spiller does.  Return false if that is not possible. */
static bool
spill(void)
{
	HeraldPosition segment = atomic_load(&log_->tail);
	Bytes	   *to = &saved[saved_count];

	dispatch();
	if (saved_count == SAVED_MAX || atomic_load(&log_->settled) < segment + SEGMENT_BYTES)
		return false;
	to->at = malloc(SEGMENT_BYTES);
	to->length = SEGMENT_BYTES;
	memcpy(to->at, (const void *) herald_queue_at(log_, segment), SEGMENT_BYTES);
	saved_count++;
	must(herald_queue_recycle(log_, segment + SEGMENT_BYTES), "a segment can be recycled");
	return true;
}

/* Reserve and fill a batch.  Return 0 if there is no room. */
static HeraldPosition
reserve(uint32_t database, const void *entries, uint64_t length)
{
	HeraldBatch batch = {.count = 1,.database = database,.role = 4711};
	HeraldPosition position;

	while (!herald_queue_reserve(log_, &batch, length, &position))
		if (!spill())
			return 0;
	herald_queue_fill(log_, position, entries, length);
	if (batches_count < BATCHES_MAX)
		batches[batches_count++] = position;
	return position;
}

/* Write one to four messages; committed or not, for the listener's database or the other one. */
static void
do_batch(void)
{
	char		entries[HERALD_COMMIT_LENGTH + 4 * 160] __attribute__((aligned(8)));
	unsigned	flags = next_byte();
	bool		is_ours = flags % 4 != 0;
	bool		commits = flags / 4 % 4 != 0;
	uint64_t	length = write_commit(entries, flags / 64, 4);
	int			count = 0;
	HeraldPosition position;

	do
		length += write_numbered(entries + length, sent + count, next_below(100));
	while (++count < (int) (flags / 16 % 4) && length < SEGMENT_BYTES / 2);

	position = reserve(is_ours ? DATABASE : OTHER_DATABASE, entries, length);
	if (position == 0)
		return;
	if (!commits)
		herald_queue_abort(log_, position);
	else
	{
		commit_batch(position, sent);
		if (is_ours)
			sent += count;
	}
}

/* The file has the last `messages` messages. */
static void
send_reference(uint64_t number, uint64_t file_length, int messages)
{
	char		entries[512] __attribute__((aligned(8)));
	uint64_t	length;
	HeraldPosition position;

	sent -= messages;
	length = write_commit(entries, (unsigned) number / 2, messages);
	length += number % 2 ? entry_write_channel(entries + length, "channel") :
		entry_write_all_listeners(entries + length);
	length += entry_write_file(entries + length, number, file_length);
	position = reserve(DATABASE, entries, length);
	if (position != 0)
		commit_batch(position, sent);
	else
		damaged = true;			/* the messages in the file are not sent */
	sent += messages;
}

/* Write a transaction that is in a file. */
static void
do_file(void)
{
	unsigned	count = next_below(FILE_ENTRIES_MAX + 1);
	Bytes	   *file = &files[files_count];
	char	   *entries = malloc((FILE_ENTRIES_MAX + 1) * 320);

	if (files_count < FILES_MAX)
	{
		file->length = 0;
		for (unsigned i = 0; i < count; i++)
			file->length += write_numbered(entries + file->length, sent++, next_byte());
		file->at = malloc(file->length + 1);
		memcpy(file->at, entries, file->length);
		files_count++;
		send_reference((uint64_t) files_count, file->length, (int) count);
	}
	free(entries);
}

/* ---- writing what no sender writes ---- */

static uint64_t
next_raw(char *to)
{
	uint64_t	length = HERALD_ALIGN_UP(next_below(RAW_MAX));

	for (uint64_t i = 0; i < length; i++)
		to[i] = (char) next_byte();
	return length;
}

static void
do_raw_batch(void)
{
	char		entries[RAW_MAX + HERALD_ALIGN] __attribute__((aligned(8)));
	uint64_t	length = next_raw(entries);
	HeraldPosition position;

	if (length == 0)			/* messages with a commit between them */
	{
		length = write_numbered(entries, 0, 0);
		length += entry_write_commit(entries + length, 1, 1);
		length += write_numbered(entries + length, 0, 0);
	}
	position = reserve(DATABASE, entries, length);
	damaged = true;
	if (position != 0)
		commit_batch(position, 0);
}

static void
do_raw_reference(void)
{
	damaged = true;
	send_reference(next_below(FILES_MAX), next_word(), 0);
}

/* Change 4 bytes. */
static void
damage(Bytes bytes)
{
	uint64_t	at = (next_byte() | (uint64_t) next_byte() << 8) * 4;
	uint32_t	word = next_word();

	damaged = true;
	if (bytes.at != NULL && bytes.length >= sizeof(word))
		memcpy(bytes.at + at % (bytes.length & ~UINT64_C(3)), &word, sizeof(word));
}

/* The header of a batch and that of its first entry, in words. */
#define HEADER_WORDS	((sizeof(HeraldBatchHeader) + sizeof(HeraldEntry)) / sizeof(uint32_t))

/* Damage the header of a batch, the header of its first entry, or its last bytes. */
static void
do_damage_batch(void)
{
	HeraldPosition position;
	HeraldBatchHeader *header;
	char	   *at;
	uint32_t	word;
	unsigned	place = next_below(HEADER_WORDS + 2);
	unsigned	how = next_byte();

	damaged = true;
	if (batches_count == 0)
		return;
	position = batches[next_byte() % batches_count];
	if (position >= atomic_load(&log_->tail))
		at = (char *) herald_queue_at(log_, position);
	else if (saved[(position - RING_BYTES) / SEGMENT_BYTES].at != NULL)
		at = saved[(position - RING_BYTES) / SEGMENT_BYTES].at + position % SEGMENT_BYTES;
	else
		return;

	header = (HeraldBatchHeader *) at;
	if (place < HEADER_WORDS)
		at += place * sizeof(word);
	else if (header->length >= sizeof(*header) && header->length <= SEGMENT_BYTES - position % SEGMENT_BYTES)
		at += (header->length - sizeof(word)) & ~UINT64_C(3);
	if (at - (char *) header + position % SEGMENT_BYTES > SEGMENT_BYTES - sizeof(word))
		return;
	memcpy(&word, at, sizeof(word));
	if (place == 0 && how % 2)
		word = (word & ~(uint32_t) HERALD_STATE_MASK) | how / 2 % HERALD_ALIGN;
	else if (place == HEADER_WORDS - 1 && how % 2)	/* the kind, in one word with the channel's length */
		word = (word & 0xffff) | (uint32_t) (how / 2 % 7) << 16;
	else if (how % 3 == 0)
		word += next_byte() - 128;
	else if (how % 3 == 1)
		word = UINT32_C(0x78787878);
	else
		word = next_word();
	memcpy(at, &word, sizeof(word));
}

/* Damage a saved segment, or the ring. */
static void
do_damage_log(void)
{
	unsigned	choice = next_byte();

	if (saved_count > 0 && choice % 2)
		damage(saved[choice / 2 % saved_count]);
	else
		damage((Bytes) {(char *) log_->ring, RING_BYTES});
}

static void
do_raw_file(void)
{
	char		bytes[RAW_MAX + HERALD_ALIGN] __attribute__((aligned(8)));
	uint64_t	length = next_raw(bytes);
	Bytes	   *file = &files[next_below(FILES_MAX)];

	damaged = true;
	if (length == 0)			/* a file that refers to a file */
	{
		length = entry_write_all_listeners(bytes);
		length += entry_write_file(bytes + length, next_below(FILES_MAX), next_word());
	}
	if (file->at == NULL)
		return;
	if (length > file->length)
		length = file->length;
	memcpy(file->at, bytes, length);
	if (next_byte() % 2)
		file->length = length;	/* cut off the rest */
}

static void
discard(Bytes *bytes)
{
	removed = true;
	free(bytes->at);
	bytes->at = NULL;
}

/* ---- reading, as a listener does ---- */

static bool
read_saved(HeraldPosition from, uint64_t length, char *to)
{
	uint64_t	segment = (from - RING_BYTES) / SEGMENT_BYTES;
	uint64_t	offset = from % SEGMENT_BYTES;

	must(length > 0 && length <= reader.buffer_size, "what is read fits into the buffer");
	must(from >= RING_BYTES && offset + length <= SEGMENT_BYTES, "reads stay within a segment");
	must(segment < (uint64_t) saved_count, "what is not in the ring was saved");
	if (saved[segment].at == NULL)
		return false;
	memcpy(to, saved[segment].at + offset, length);
	return true;
}

static bool
read_file(uint64_t number, uint64_t offset, uint64_t length, char *to)
{
	Bytes		file = {NULL, 0};

	must(length > 0 && length <= reader.buffer_size, "what is read fits into the buffer");
	if (number > 0 && number <= (uint64_t) files_count)
		file = files[number - 1];
	if (file.at == NULL || offset > file.length || length > file.length - offset)
	{
		must(damaged || removed, "a file that was not damaged is read within its bounds");
		return false;
	}
	memcpy(to, file.at + offset, length);
	return true;
}

static void
begin_reading(void)
{
	size_t		size = BUFFER_MIN + HERALD_ALIGN * next_below((BUFFER_MAX - BUFFER_MIN) / HERALD_ALIGN);

	herald_reader_begin(&reader, log_, DATABASE, RING_BYTES, RING_BYTES, malloc(size), size);
	herald_reader_use_spilled(&reader, read_saved);
	herald_reader_use_files(&reader, read_file, NULL);
}

static void
check_message(const HeraldMessage *message)
{
	const HeraldEntry *entry = message->entry;
	const char *at = (const char *) entry;
	HeraldPosition batch = message->batch;

	must(at >= reader.buffer && entry->length <= reader.buffer_size &&
		 at + entry->length <= reader.buffer + (reader.copied_to - reader.copied_from),
		 "an entry lies in what was copied");
	must(reader.header.word == herald_word_make(batch, HERALD_BATCH_COMMITTED),
		 "only batches that are committed are read");
	must(entry->kind == HERALD_ENTRY_NOTIFICATION, "only notifications are messages");
	must(reader.in_file || (reader.position - 1) / SEGMENT_BYTES == batch / SEGMENT_BYTES,
		 "a batch that is read lies within a segment");

	touch_entry(entry);
	if (!damaged)
	{
		must(heard < sent && atoi(herald_entry_payload(entry)) == heard, "messages come in order");
		must(memcmp(&message->commit, &sent_commits[heard], sizeof(message->commit)) == 0,
			 "a message has its batch's commit");
	}
	must(batch != last_heard.batch || memcmp(&message->commit, &last_heard.commit, sizeof(message->commit)) == 0,
		 "all messages of a batch have the same commit");
	last_heard = *message;
	heard++;
}

/* Read once.  Return false at the end of the pass. */
static bool
step(void)
{
	HeraldReader before = reader;
	HeraldMessage message;

	must(++steps < STEPS_MAX, "the reader comes to an end");
	must(reader.position % HERALD_ALIGN == 0, "positions are aligned");
	switch (herald_reader_next(&reader, &message))
	{
		case HERALD_READ_MESSAGE:
			check_message(&message);
			return true;
		case HERALD_READ_REFILLED:
			must(reader.copied_to - reader.copied_from <= reader.buffer_size, "a chunk fits into the buffer");
			must(reader.position != before.position || reader.copied_from != before.copied_from ||
				 reader.copied_to != before.copied_to || reader.in_file != before.in_file,
				 "no chunk is read twice");
			return true;
		case HERALD_READ_ROOM:
			must(reader.room_needed > reader.buffer_size, "there is not room enough yet");
			if (!reader.in_file)
				must(reader.room_needed <= SEGMENT_BYTES, "no entry is longer than a segment");
			if (reader.room_needed > 1024 * 1024)
				return false;	/* as if memory were exhausted */
			free(reader.buffer);
			herald_reader_set_buffer(&reader, malloc(reader.room_needed), reader.room_needed);
			return true;
		case HERALD_READ_END:
			must(reader.position == reader.end, "the reader ends where it should");
			must(damaged || heard == sent, "nothing is left out");
			return false;
		case HERALD_READ_LAPPED:
			must(damaged || removed, "nothing is gone that was not deleted");
			return false;
		case HERALD_READ_DAMAGED:
			must(damaged, "nothing is damaged that was not");
			return false;
	}
	must(false, "a known result");
	return false;
}

/* Read several times.  Return false if reading has ended for good. */
static bool
do_read(void)
{
	unsigned	count = next_byte();

	dispatch();
	if (atomic_load(&log_->dispatched) > reader.end)
		herald_reader_extend(&reader, atomic_load(&log_->dispatched));
	while (count-- > 0)
	{
		if (reader.position == reader.end && !reader.in_batch)
			return true;
		if (!step())
			return reader.position == reader.end && !reader.in_batch;
	}
	return true;
}

/* ---- a program ---- */

static bool
do_next(void)
{
	switch ((Operation) next_below(OPERATIONS))
	{
		case OP_BATCH:
		case OP_BATCH_AGAIN:
			do_batch();
			break;
		case OP_FILE:
			do_file();
			break;
		case OP_SPILL:
			(void) spill();
			break;
		case OP_READ:
			return do_read();
		case OP_RAW_BATCH:
			do_raw_batch();
			break;
		case OP_RAW_REFERENCE:
			do_raw_reference();
			break;
		case OP_RAW_FILE:
			do_raw_file();
			break;
		case OP_DAMAGE_BATCH:
		case OP_DAMAGE_BATCH_AGAIN:
			do_damage_batch();
			break;
		case OP_DAMAGE_LOG:
			do_damage_log();
			break;
		case OP_DAMAGE_FILE:
			damage(files[next_below(FILES_MAX)]);
			break;
		case OP_REMOVE_SEGMENT:
			if (saved_count > 0)
				discard(&saved[next_below((unsigned) saved_count)]);
			break;
		case OP_REMOVE_FILE:
			discard(&files[next_below(FILES_MAX)]);
			break;
		case OPERATIONS:
			break;
	}
	return true;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool		goes_on = true;
	bool		past_dispatcher;

	input.at = data;
	input.end = data + size;
	saved_count = files_count = batches_count = sent = heard = steps = 0;
	damaged = removed = false;
	last_heard = (HeraldMessage) {0};
	begin_log();
	begin_reading();

	/* A dispatcher does not see damage that is done after it has dispatched. */
	past_dispatcher = next_byte() % 2;
	while (goes_on && input.at < input.end && sent < MESSAGES_MAX - FILE_ENTRIES_MAX)
		goes_on = do_next();
	dispatch();
	if (goes_on)
	{
		HeraldPosition to = atomic_load(past_dispatcher ? &log_->head : &log_->dispatched);

		herald_reader_extend(&reader, to > reader.end ? to : reader.end);
		while (step())
			;
	}

	for (int i = 0; i < saved_count; i++)
		free(saved[i].at);
	for (int i = 0; i < FILES_MAX; i++)
	{
		free(files[i].at);
		files[i].at = NULL;
	}
	free(reader.buffer);
	free(log_);
	return 0;
}
