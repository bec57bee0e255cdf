/*-------------------------------------------------------------------------
 *
 * test_wal_parts.c
 *	  Unit tests of wal_parts.c and wal_running.c: each rule, and random WAL.
 *
 * Guards: of each committed transaction all parts are read, in order, or it is known that one is
 * missing; and a transaction is given up only if it cannot commit.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "wal_parts.h"
#include "wal_running.h"
#include "xid.h"

#define RUN				7u
#define OTHER_RUN		8u
#define PLACE			800u

static HeraldWalMessage
part_of(uint32_t part, bool is_last, uint64_t first)
{
	return (HeraldWalMessage) {
		.kind = HERALD_WAL_NOTIFICATIONS,
		.run = RUN,
		.place = is_last ? PLACE : 0,
		.first = first,
		.sender = {.xid = 700,.role = 70},
		.part = part,
		.is_last = is_last
	};
}

static void
take(HeraldWalParts *parts, uint64_t at, HeraldWalMessage message)
{
	herald_wal_parts_take(parts, at, &message);
}

static HeraldWalPart
read_again(const HeraldWalParts *parts, HeraldWalParts *again, uint64_t at, HeraldWalMessage message)
{
	return herald_wal_parts_read(parts, again, at, &message);
}


/* ---- each rule ---- */

/* Guards: a message is complete with its last part, and not before; its place and its sender are known then. */
static void
test_complete(void **state UNUSED)
{
	HeraldWalParts parts = herald_wal_parts_begin(RUN, 100);

	assert_true(parts.count == 0 && parts.last == 0 && !parts.is_complete);
	take(&parts, 100, part_of(1, false, 0));
	take(&parts, 200, part_of(2, false, 100));
	assert_true(parts.count == 2 && !parts.is_complete && !parts.lacks_parts);
	take(&parts, 300, part_of(3, true, 100));
	assert_true(parts.count == 3 && parts.is_complete && !parts.lacks_parts);
	assert_true(parts.first == 100 && parts.last == 300 && parts.place == PLACE && parts.run == RUN);
	assert_true(parts.sender.xid == 700 && parts.sender.role == 70);
}

/* Guards: a message has begun where its parts say, or where the transaction had written something before. */
static void
test_first(void **state UNUSED)
{
	HeraldWalParts parts = herald_wal_parts_begin(RUN, 50);

	take(&parts, 100, part_of(1, false, 0));
	take(&parts, 200, part_of(2, true, 100));
	assert_int_equal(parts.first, 50);

	parts = herald_wal_parts_begin(RUN, 200);
	take(&parts, 200, part_of(2, false, 100));
	assert_int_equal(parts.first, 100);
	take(&parts, 300, part_of(3, true, 100));
	assert_true(parts.first == 100 && parts.last == 300 && parts.count == 2);
	assert_true(parts.lacks_parts && parts.is_complete);
}

/* Guards: a message of which something is missing in the middle, or that goes on behind its end, is never complete. */
static void
test_never_complete(void **state UNUSED)
{
	HeraldWalMessage foreign = part_of(2, true, 100);
	HeraldWalParts parts = herald_wal_parts_begin(RUN, 100);

	take(&parts, 100, part_of(1, false, 0));
	take(&parts, 200, part_of(3, false, 100));
	take(&parts, 300, part_of(4, true, 100));
	assert_false(parts.is_complete);
	take(&parts, 400, part_of(5, true, 100));
	assert_false(parts.is_complete);

	parts = herald_wal_parts_begin(RUN, 100);
	take(&parts, 100, part_of(1, false, 0));
	take(&parts, 200, part_of(3, true, 100));
	assert_false(parts.is_complete);

	for (uint32_t number = 1; number <= 2; number++)
	{
		parts = herald_wal_parts_begin(RUN, 100);
		take(&parts, 100, part_of(1, true, 0));
		assert_true(parts.is_complete);
		take(&parts, 200, part_of(number, true, number == 1 ? 0 : 100));
		assert_false(parts.is_complete);
		take(&parts, 300, part_of(number + 1, true, 100));
		assert_false(parts.is_complete);
	}

	foreign.run = OTHER_RUN;
	parts = herald_wal_parts_begin(RUN, 100);
	take(&parts, 100, part_of(1, false, 0));
	take(&parts, 200, foreign);
	assert_false(parts.is_complete);

	/* The largest number has none behind it. */
	parts = herald_wal_parts_begin(RUN, 100);
	take(&parts, 100, part_of(UINT32_MAX, false, 50));
	take(&parts, 200, part_of(1, true, 0));
	assert_false(parts.is_complete);
}

/* Guards: parts whose places are known are read again without anything between. */
static void
test_read_again(void **state UNUSED)
{
	HeraldWalMessage setting = {.kind = HERALD_WAL_SETTING,.run = RUN,.part = 1};
	HeraldWalMessage foreign = part_of(1, false, 0);
	HeraldWalParts parts = herald_wal_parts_begin(RUN, 100);
	HeraldWalParts again;

	take(&parts, 100, part_of(1, false, 0));
	take(&parts, 200, part_of(2, true, 100));

	/* Any number of times. */
	for (int round = 0; round < 2; round++)
	{
		again = herald_wal_parts_again(&parts);
		assert_false(herald_wal_parts_are_read(&parts, &again));
		assert_int_equal(read_again(&parts, &again, 100, part_of(1, false, 0)), HERALD_WAL_PART_NEXT);
		assert_false(herald_wal_parts_are_read(&parts, &again));
		assert_int_equal(again.count, 1);
		assert_int_equal(read_again(&parts, &again, 200, part_of(2, true, 100)), HERALD_WAL_PART_NEXT);
		assert_true(herald_wal_parts_are_read(&parts, &again));
	}

	/* Something else is there: the record of another transaction, a setting, another part, one of another run. */
	again = herald_wal_parts_again(&parts);
	foreign.run = OTHER_RUN;
	assert_int_equal(herald_wal_parts_read(&parts, &again, 100, NULL), HERALD_WAL_PART_MISSING);
	assert_int_equal(read_again(&parts, &again, 100, setting), HERALD_WAL_PART_MISSING);
	assert_int_equal(read_again(&parts, &again, 100, part_of(2, true, 100)), HERALD_WAL_PART_MISSING);
	assert_int_equal(read_again(&parts, &again, 100, foreign), HERALD_WAL_PART_MISSING);
	assert_int_equal(again.count, 0);
}

/* Guards: parts that are lacking are looked for among other records, and not beyond the last one. */
static void
test_read_lacking_again(void **state UNUSED)
{
	HeraldWalMessage setting = {.kind = HERALD_WAL_SETTING,.run = RUN,.part = 1};
	HeraldWalParts parts = herald_wal_parts_begin(RUN, 300);
	HeraldWalParts again;

	take(&parts, 300, part_of(3, true, 100));
	again = herald_wal_parts_again(&parts);
	assert_int_equal(again.first, 100);
	assert_int_equal(read_again(&parts, &again, 90, setting), HERALD_WAL_PART_OTHER);
	assert_int_equal(read_again(&parts, &again, 100, part_of(1, false, 0)), HERALD_WAL_PART_NEXT);
	assert_int_equal(herald_wal_parts_read(&parts, &again, 150, NULL), HERALD_WAL_PART_OTHER);
	assert_int_equal(read_again(&parts, &again, 200, part_of(2, false, 100)), HERALD_WAL_PART_NEXT);
	assert_false(herald_wal_parts_are_read(&parts, &again));
	assert_int_equal(read_again(&parts, &again, 300, part_of(3, true, 100)), HERALD_WAL_PART_NEXT);
	assert_true(herald_wal_parts_are_read(&parts, &again));

	/* Part 2 is not there. */
	again = herald_wal_parts_again(&parts);
	assert_int_equal(read_again(&parts, &again, 100, part_of(1, false, 0)), HERALD_WAL_PART_NEXT);
	assert_int_equal(herald_wal_parts_read(&parts, &again, 299, NULL), HERALD_WAL_PART_OTHER);
	assert_int_equal(read_again(&parts, &again, 300, part_of(3, true, 100)), HERALD_WAL_PART_MISSING);
	assert_int_equal(herald_wal_parts_read(&parts, &again, 301, NULL), HERALD_WAL_PART_MISSING);
}

/* Guards: the end of a run ends all transactions but the prepared ones, a list those that are older than all in it. */
static void
test_running(void **state UNUSED)
{
	const HeraldWalRunning end_of_run = {.only_prepared = true};
	static const uint32_t ids[] = {3, 1000, INT32_MAX, (uint32_t) INT32_MAX + 1, UINT32_MAX - 1, UINT32_MAX};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
	{
		HeraldWalRunning list = {.oldest = ids[i]};

		assert_false(herald_wal_running_includes(end_of_run, ids[i], false));
		assert_true(herald_wal_running_includes(end_of_run, ids[i], true));
		for (int is_prepared = 0; is_prepared <= 1; is_prepared++)
		{
			assert_true(herald_wal_running_includes(list, ids[i], is_prepared));
			assert_true(herald_wal_running_includes(list, ids[i] + 5, is_prepared));
			assert_true(herald_wal_running_includes(list, ids[i] + INT32_MAX, is_prepared));
			assert_false(herald_wal_running_includes(list, ids[i] - 1, is_prepared));
			assert_false(herald_wal_running_includes(list, ids[i] - INT32_MAX, is_prepared));
		}
	}
}


/* ---- random WAL ---- */

#define WORLDS			20000
#define RECORDS			80		/* of a world's WAL; each begins at its number, from 1 on */
#define TRANSACTIONS	30
#define AT_ONCE			4
#define PARTS_MAX		5

/* A transaction as the server knows it. */
typedef struct Transaction
{
	uint32_t	xid;
	uint64_t	run;
	bool		is_open;
	bool		is_prepared;
	uint32_t	parts;			/* that it writes in all; 0: a setting */
	uint32_t	written;
	uint64_t	first;			/* where part 1 begins */
	uint64_t	places[PARTS_MAX];

	/* As the reader knows it. */
	bool		is_known;
	bool		knows_prepared;
	HeraldWalParts known;
} Transaction;

typedef enum RecordKind
{
	RECORD_OTHER,				/* which is nothing to the reader */
	RECORD_MESSAGE,
	RECORD_COMMIT,
	RECORD_ABORT,
	RECORD_PREPARE,
	RECORD_END_OF_RUN,
	RECORD_LIST
} RecordKind;

typedef struct Record
{
	RecordKind	kind;
	int			transaction;
	HeraldWalMessage message;
	uint32_t	oldest;			/* of a list */
	bool		alive[TRANSACTIONS];	/* those that were open when it had been written */
} Record;

typedef struct World
{
	unsigned	seed;
	uint64_t	run;
	uint32_t	next_xid;
	int			transactions;
	Transaction all[TRANSACTIONS];
	Record		wal[RECORDS + 1];
	uint64_t	begin;			/* of reading */
	uint64_t	kept_from;		/* what is before is not there when it is read again */
} World;

/* What the worlds have had. */
static struct
{
	int			complete;
	int			lacking;
	int			gone;
	int			dropped;
	int			prepared_kept;
}			seen;

static unsigned
draw(World *world, unsigned below)
{
	world->seed = world->seed * 1103515245 + 12345;
	return (world->seed >> 16) % below;
}

static Transaction *
begin(World *world)
{
	Transaction *new = &world->all[world->transactions++];

	*new = (Transaction) {
		.xid = world->next_xid,
		.run = world->run,
		.is_open = true,
		.parts = draw(world, PARTS_MAX + 1)
	};
	world->next_xid = world->next_xid == UINT32_MAX ? 3 : world->next_xid + 1;
	return new;
}

/* An open transaction; or a new one, if few are open; or NULL. */
static Transaction *
choose(World *world)
{
	int			open[TRANSACTIONS];
	int			count = 0;

	for (int i = 0; i < world->transactions; i++)
		if (world->all[i].is_open)
			open[count++] = i;
	if (count < AT_ONCE && world->transactions < TRANSACTIONS && draw(world, 2) == 0)
		return begin(world);
	return count == 0 ? NULL : &world->all[open[draw(world, (unsigned) count)]];
}

/* The next record of a transaction: a part, a setting, or its end. */
static void
write_of(World *world, Transaction *transaction, uint64_t at, Record *record)
{
	bool		is_setting = transaction->parts == 0;
	uint32_t	wanted = is_setting ? 1 : transaction->parts;

	record->transaction = (int) (transaction - world->all);
	if (draw(world, 12) == 0)
	{
		record->kind = RECORD_ABORT;
		transaction->is_open = false;
	}
	else if (transaction->written < wanted)
	{
		record->kind = RECORD_MESSAGE;
		record->message = part_of(transaction->written + 1, transaction->written + 1 == wanted, transaction->first);
		if (is_setting)
			record->message = (HeraldWalMessage) {.kind = HERALD_WAL_SETTING};
		record->message.run = transaction->run;
		transaction->places[transaction->written++] = at;
		if (transaction->written == 1)
			transaction->first = at;
	}
	else if (is_setting && !transaction->is_prepared && draw(world, 2) == 0)
	{
		record->kind = RECORD_PREPARE;
		transaction->is_prepared = true;
	}
	else if (!transaction->is_prepared || draw(world, 4) == 0)
	{
		record->kind = RECORD_COMMIT;
		transaction->is_open = false;
	}
}

/* The server ends, perhaps by a crash. */
static void
end_run(World *world, Record *record)
{
	record->kind = RECORD_END_OF_RUN;
	for (int i = 0; i < world->transactions; i++)
		world->all[i].is_open &= world->all[i].is_prepared;
	world->run++;
}

static void
write_list(World *world, Record *record)
{
	record->kind = RECORD_LIST;
	record->oldest = world->next_xid;
	for (int i = world->transactions - 1; i >= 0; i--)
		if (world->all[i].is_open)
			record->oldest = world->all[i].xid;
}

static void
write_wal(World *world)
{
	for (uint64_t at = 1; at <= RECORDS; at++)
	{
		Record	   *record = &world->wal[at];
		unsigned	choice = draw(world, 40);

		if (choice == 0)
			end_run(world, record);
		else if (choice <= 3)
			write_list(world, record);
		else if (choice > 6)
		{
			Transaction *transaction = choose(world);

			if (transaction != NULL)
				write_of(world, transaction, at, record);
		}
		for (int i = 0; i < world->transactions; i++)
			record->alive[i] = world->all[i].is_open;
	}
}

/* As a reader does it, by the places that it knows, or record by record: the number of parts. */
static uint32_t
read_all_again(const World *world, const Transaction *transaction, const uint64_t *places)
{
	const HeraldWalParts *parts = &transaction->known;
	HeraldWalParts again = herald_wal_parts_again(parts);
	uint64_t	at = again.first;

	while (!herald_wal_parts_are_read(parts, &again))
	{
		const Record *record;
		bool		is_of_it;
		HeraldWalPart part;

		if (!parts->lacks_parts)
			at = places[again.count];
		assert_in_range(at, 1, RECORDS);
		if (at < world->kept_from)
			return 0;
		record = &world->wal[at];
		is_of_it = record->kind == RECORD_MESSAGE && &world->all[record->transaction] == transaction;
		part = herald_wal_parts_read(parts, &again, at, is_of_it ? &record->message : NULL);
		if (part == HERALD_WAL_PART_MISSING)
			return 0;
		if (part == HERALD_WAL_PART_NEXT)
			assert_int_equal(transaction->places[again.count - 1], at);
		at++;
	}
	assert_true(again.is_complete);
	return again.count;
}

static void
check_commit(const World *world, const Transaction *transaction)
{
	const HeraldWalParts *parts = &transaction->known;
	const uint64_t *places = transaction->places + (transaction->parts - parts->count);
	bool		lacks_parts = transaction->first < world->begin;
	bool		is_there = !lacks_parts || transaction->first >= world->kept_from;
	uint32_t	read;

	if (parts->count == 0)
	{
		assert_int_equal(transaction->parts, 0);
		return;
	}
	assert_true(parts->is_complete);
	assert_int_equal(parts->place, PLACE);
	assert_int_equal(parts->first, transaction->first);
	assert_int_equal(parts->last, transaction->places[transaction->parts - 1]);
	assert_int_equal(parts->lacks_parts, lacks_parts);
	read = read_all_again(world, transaction, places);
	assert_int_equal(read, is_there ? transaction->parts : 0);
	seen.complete += !lacks_parts;
	seen.lacking += lacks_parts && is_there;
	seen.gone += !is_there;
}

/* Drop those that a record says have ended: all that are left are alive, or younger than the oldest. */
static void
drop_ended(World *world, const Record *record)
{
	HeraldWalRunning running = {.only_prepared = record->kind == RECORD_END_OF_RUN,.oldest = record->oldest};

	for (int i = 0; i < world->transactions; i++)
	{
		Transaction *transaction = &world->all[i];

		if (!transaction->is_known)
			continue;
		transaction->is_known = herald_wal_running_includes(running, transaction->xid, transaction->knows_prepared);
		seen.dropped += !transaction->is_known;
		if (record->alive[i])
			assert_true(transaction->is_known);
		else if (record->kind == RECORD_END_OF_RUN || herald_xid_precedes(transaction->xid, record->oldest))
			assert_false(transaction->is_known);
		seen.prepared_kept += transaction->is_known && record->kind == RECORD_END_OF_RUN;
	}
}

static void
read_wal(World *world)
{
	for (uint64_t at = world->begin; at <= RECORDS; at++)
	{
		const Record *record = &world->wal[at];
		Transaction *transaction = &world->all[record->transaction];

		switch (record->kind)
		{
			case RECORD_OTHER:
				break;
			case RECORD_MESSAGE:
				if (!transaction->is_known)
					transaction->known = herald_wal_parts_begin(record->message.run, at);
				transaction->is_known = true;
				if (record->message.kind == HERALD_WAL_NOTIFICATIONS)
					herald_wal_parts_take(&transaction->known, at, &record->message);
				break;
			case RECORD_PREPARE:
				transaction->knows_prepared = true;
				break;
			case RECORD_COMMIT:
				if (transaction->is_known)
					check_commit(world, transaction);
				else
					assert_true(transaction->places[transaction->written - 1] < world->begin);
				transaction->is_known = false;
				break;
			case RECORD_ABORT:
				transaction->is_known = false;
				break;
			case RECORD_END_OF_RUN:
			case RECORD_LIST:
				drop_ended(world, record);
				break;
		}
	}
}

/*
 * Guards: of transactions side by side, some of which are rolled back, ended with the server or prepared, each that
 * commits is read whole, or found to be gone, wherever reading begins.
 */
static void
test_random_wal(void **state UNUSED)
{
	memset(&seen, 0, sizeof(seen));
	for (unsigned seed = 1; seed <= WORLDS; seed++)
	{
		World	   *world = calloc(1, sizeof(World));

		world->seed = seed;
		world->run = RUN;
		world->next_xid = draw(world, 2) == 0 ? 3 : UINT32_MAX - draw(world, TRANSACTIONS);
		write_wal(world);
		world->begin = 1 + draw(world, RECORDS / 2);
		world->kept_from = draw(world, 4) == 0 ? 1 + draw(world, (unsigned) world->begin) : 1;
		read_wal(world);
		free(world);
	}
	assert_true(seen.complete > WORLDS && seen.lacking > WORLDS / 10 && seen.gone > WORLDS / 100);
	assert_true(seen.dropped > WORLDS / 10 && seen.prepared_kept > WORLDS / 100);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_complete),
		cmocka_unit_test(test_first),
		cmocka_unit_test(test_never_complete),
		cmocka_unit_test(test_read_again),
		cmocka_unit_test(test_read_lacking_again),
		cmocka_unit_test(test_running),
		cmocka_unit_test(test_random_wal),
	};

	return cmocka_run_group_tests_name("parts in the WAL", tests, NULL, NULL);
}
