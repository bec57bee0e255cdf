/*-------------------------------------------------------------------------
 *
 * wal_world.h
 *	  A small world of servers with a WAL and a queue each, for receipt.c and wal_history.c.
 *
 * A primary reserves places in its queue in one order, and commits in another one.  It writes anchors, each in
 * three steps.  A standby replays the WAL of another server, record by record; its relay puts what is
 * committed there into the standby's queue, and publishes how far it is.  A standby can be promoted at any moment; then its
 * source goes on with another history, or is built again from any other server.  A primary that crashes loses
 * what it has not flushed.
 *
 * wal_world_client.h has the clients.  A program that includes these files defines before: draw(), the source of all
 * decisions, and must(), which fails.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TEST_WAL_WORLD_H
#define HERALD_TEST_WAL_WORLD_H

#include <string.h>

#include "wal_history.h"
#include "receipt.h"

#define SERVERS			3
#define DATABASES		2
#define TRANSACTIONS	60
#define RECORDS			400
#define PLACES			(TRANSACTIONS + 1)
#define ANCHORS			60
#define NONE			(-1)
#define BIT(transaction)	(UINT64_C(1) << (transaction))

/* A number below the limit. */
static unsigned draw(unsigned limit);
static void must(bool condition, const char *what);

typedef enum RecordKind
{
	ANCHOR, MESSAGE, COMMIT, ABORT
} RecordKind;

/* Record number i begins at i + 1, and ends where the next one begins. */
typedef struct Record
{
	RecordKind	kind;
	int			transaction;	/* NONE: an anchor */
	uint64_t	run;
} Record;

typedef enum Stage
{
	RESERVED, LOGGED, COMMITTED, FINISHED, ABORTED, DEAD
} Stage;

typedef struct Transaction
{
	Stage		stage;
	int			server;
	unsigned	database;
	bool		is_slow;
	HeraldCommitId commit;
	uint64_t	predecessors;	/* what was finished there before this one was reserved */
} Transaction;

/* What a reader of the WAL knows: transactions of which it has read a message. */
typedef struct Assembler
{
	uint64_t	open;
	uint64_t	run;
} Assembler;

typedef struct Anchor
{
	HeraldWalAnchor at;
	uint64_t	place;
} Anchor;

/* As in logged/relay_state.h. */
typedef struct Reached
{
	uint64_t	wal;
	uint64_t	place;
	HeraldWalAnchor from;
	HeraldCommitId last;
} Reached;

typedef struct Relay
{
	bool		has_begun;
	bool		is_active;
	int			read;			/* records */
	int			reread_from;	/* if it is started again */
	Assembler	assembler;
	HeraldWalAnchor anchor;		/* the latest one at which no transaction was open */
	Reached		noted;
	Reached		reached;		/* published */
	bool		is_to_note;		/* it has put something into the queue, and has not published that */
} Relay;

typedef enum AnchorStep
{
	NO_ANCHOR, ANCHOR_INSERTED, ANCHOR_HAS_PLACE
} AnchorStep;

typedef struct Server
{
	Record		wal[RECORDS];
	int			records;
	int			flushed;
	uint64_t	run;
	bool		is_primary;
	int			source;			/* of a standby; NONE: it gets no more WAL */
	int			queue[PLACES];	/* transactions; NONE: nothing that concerns a client */
	uint64_t	head;
	uint64_t	settled;
	HeraldCommitId last_logged;
	Anchor		anchors[ANCHORS];
	int			anchor_count;
	Anchor		pending;
	AnchorStep	anchor_step;
	Relay		relay;
} Server;

static struct
{
	Server		servers[SERVERS];
	Transaction transactions[TRANSACTIONS];
	int			used;			/* transactions */
	uint64_t	last_run;
	bool		is_calm;		/* no server crashes or is started again, and none is promoted */
	bool		is_at_rest;
	unsigned	slow_percent;
	unsigned	abort_percent;
	unsigned	flush_percent;	/* of commits */
}			world;


static bool
percent(unsigned chance)
{
	return draw(100) < chance;
}

/* ---- the WAL ---- */

static uint64_t
wal_begin(int record)
{
	return (uint64_t) record + 1;
}

static uint64_t
wal_end(int record)
{
	return (uint64_t) record + 2;
}

static uint64_t
end_of_wal(const Server *server)
{
	return wal_begin(server->records);
}

/* Each transaction can still write its two records. */
static bool
has_room(const Server *server)
{
	return server->records < RECORDS - 3 * TRANSACTIONS;
}

static void
insert(Server *server, RecordKind kind, int transaction)
{
	server->wal[server->records++] = (Record) {kind, transaction, server->run};
}

static bool
is_same_record(const Record *one, const Record *other)
{
	return one->kind == other->kind && one->transaction == other->transaction && one->run == other->run;
}

static bool
is_prefix(const Server *server, const Server *of)
{
	for (int i = 0; i < server->records; i++)
		if (i >= of->records || !is_same_record(&server->wal[i], &of->wal[i]))
			return false;
	return true;
}

/* Bits of the transactions with a commit record that ends at or before this place. */
static uint64_t
committed_until(const Server *server, uint64_t wal)
{
	uint64_t	found = 0;

	for (int i = 0; i < server->records && wal_end(i) <= wal; i++)
		if (server->wal[i].kind == COMMIT)
			found |= BIT(server->wal[i].transaction);
	return found;
}

static uint64_t
of_run(uint64_t run)
{
	uint64_t	found = 0;

	for (int t = 0; t < world.used; t++)
		if (world.transactions[t].commit.run == run)
			found |= BIT(t);
	return found;
}

static uint64_t
of_database(unsigned database)
{
	uint64_t	found = 0;

	for (int t = 0; t < world.used; t++)
		if (world.transactions[t].database == database)
			found |= BIT(t);
	return found;
}

/* Returns the transaction, if this is the commit of one whose message has been read. */
static int
assemble(Assembler *assembler, const Record *record)
{
	bool		was_open;

	switch (record->kind)
	{
		case ANCHOR:
		case MESSAGE:
			if (record->run != assembler->run)
				assembler->open = 0;
			assembler->run = record->run;
			if (record->kind == MESSAGE)
				assembler->open |= BIT(record->transaction);
			return NONE;
		case COMMIT:
		case ABORT:
			was_open = (assembler->open & BIT(record->transaction)) != 0;
			assembler->open &= ~BIT(record->transaction);
			return was_open && record->kind == COMMIT ? record->transaction : NONE;
	}
	return NONE;
}

/* ---- senders ---- */

static bool
may_send(const Server *server)
{
	return server->is_primary && !server->relay.is_active;
}

static void
anchor_publish(Server *server, Anchor anchor)
{
	must(server->anchor_count < ANCHORS, "there is room for an anchor");
	server->anchors[server->anchor_count++] = anchor;
	server->flushed = server->records;
}

/* As herald_anchor_ensure(). */
static void
anchor_ensure(Server *server)
{
	if (!may_send(server) || server->anchor_count > 0)
		return;
	insert(server, ANCHOR, NONE);
	anchor_publish(server, (Anchor) {{wal_begin(server->records - 1), server->run}, server->head});
}

/* [X1] The head is read after the record was inserted. */
static void
anchor_proceed(Server *server)
{
	if (!may_send(server))
	{
		/* [X4] A session that commits meanwhile announces the run. */
		if (server->is_primary && has_room(server) && draw(4) == 0)
			insert(server, ANCHOR, NONE);
		return;
	}
	if (server->anchor_count == 0)
	{
		anchor_ensure(server);
		return;
	}
	switch (server->anchor_step)
	{
		case NO_ANCHOR:
			if (!has_room(server) || server->anchor_count >= ANCHORS)
				return;
			insert(server, ANCHOR, NONE);
			server->pending.at = (HeraldWalAnchor) {wal_begin(server->records - 1), server->run};
			server->anchor_step = ANCHOR_INSERTED;
			break;
		case ANCHOR_INSERTED:
			server->pending.place = server->head;
			server->anchor_step = ANCHOR_HAS_PLACE;
			break;
		case ANCHOR_HAS_PLACE:
			anchor_publish(server, server->pending);
			server->anchor_step = NO_ANCHOR;
			break;
	}
}

/* As herald_anchor_latest(); wal 0: there is none. */
static HeraldWalAnchor
anchor_before(const Server *server, uint64_t place)
{
	for (int i = server->anchor_count; i-- > 0;)
		if (server->anchors[i].place <= place)
			return server->anchors[i].at;
	return (HeraldWalAnchor) {0};
}

static void
note_last(Server *server, HeraldCommitId commit)
{
	if (commit.end > server->last_logged.end)
		server->last_logged = commit;
}

static void
reserve(Server *server)
{
	Transaction *transaction = &world.transactions[world.used];

	if (!may_send(server) || world.used == TRANSACTIONS)
		return;
	anchor_ensure(server);
	*transaction = (Transaction) {
		.stage = RESERVED,
		.server = (int) (server - world.servers),
		.database = draw(4) == 0,
		.is_slow = percent(world.slow_percent),
		.commit = {.run = server->run,.place = server->head},
		.predecessors = committed_until(server, UINT64_MAX),
	};
	for (int t = 0; t < world.used; t++)
		if (world.transactions[t].commit.run == server->run && world.transactions[t].stage != FINISHED)
			transaction->predecessors &= ~BIT(t);
	server->queue[server->head++] = world.used++;
}

/* First its message with its place, then its commit record, then its batch in the queue.  It can be aborted before that record. */
static void
proceed(int number)
{
	Transaction *transaction = &world.transactions[number];
	Server	   *server = &world.servers[transaction->server];

	if (transaction->stage < COMMITTED && percent(world.abort_percent))
	{
		if (transaction->stage == LOGGED)
			insert(server, ABORT, number);
		transaction->stage = ABORTED;
		return;
	}
	switch (transaction->stage)
	{
		case RESERVED:
			insert(server, MESSAGE, number);
			transaction->stage = LOGGED;
			break;
		case LOGGED:
			insert(server, COMMIT, number);
			transaction->commit.end = wal_end(server->records - 1);
			transaction->stage = COMMITTED;
			if (percent(world.flush_percent))
				server->flushed = server->records;
			break;
		case COMMITTED:
			note_last(server, transaction->commit);
			transaction->stage = FINISHED;
			break;
		default:
			break;
	}
}

static void
proceed_any(void)
{
	int			number;

	if (world.used == 0)
		return;
	number = (int) draw((unsigned) world.used);
	if (!world.transactions[number].is_slow || draw(16) == 0)
		proceed(number);
}

static void
settle(Server *server)
{
	int			number;

	if (server->settled == server->head)
		return;
	number = server->queue[server->settled];
	if (number == NONE || world.transactions[number].commit.run != server->run ||
		world.transactions[number].stage >= FINISHED)
		server->settled++;
}

/* ---- the relay ---- */

static void
relay_note(Server *server)
{
	Relay	   *relay = &server->relay;
	uint64_t	wal = wal_begin(relay->read);

	relay->is_to_note = false;
	if (wal < relay->noted.wal)
		return;
	relay->noted.wal = wal;
	relay->noted.place = server->head;
	if (relay->anchor.wal > relay->noted.from.wal)
		relay->noted.from = relay->anchor;
	relay->reached = relay->noted;
	if (relay->assembler.open == 0)
		relay->reread_from = relay->read;
}

static void
relay_take(Server *server, const Record *record)
{
	Relay	   *relay = &server->relay;
	int			number = assemble(&relay->assembler, record);
	const HeraldCommitId *commit;

	if (record->kind == ANCHOR && relay->assembler.open == 0 && wal_begin(relay->read) > relay->noted.from.wal)
		relay->anchor = (HeraldWalAnchor) {wal_begin(relay->read), record->run};
	relay->read++;
	if (number == NONE)
		return;
	commit = &world.transactions[number].commit;
	if (commit->run == server->run)
		return;
	if (commit->end > relay->noted.wal)
	{
		server->queue[server->head++] = number;
		note_last(server, *commit);
		relay->is_to_note = true;
	}
	if (commit->end > relay->noted.last.end)
		relay->noted.last = *commit;
}

/* What is put into the queue is noted in the next step. */
static void
relay_proceed(Server *server)
{
	Relay	   *relay = &server->relay;

	if (!relay->is_active)
		return;
	if (relay->is_to_note)
		relay_note(server);
	else if (relay->read < server->records)
	{
		relay_take(server, &server->wal[relay->read]);
		if (!relay->is_to_note && draw(4) == 0)
			relay_note(server);
	}
	else
	{
		if (server->is_primary)
			server->queue[server->head++] = NONE;
		relay_note(server);
		relay->is_active = !server->is_primary;
	}
}

/* To the end of what has been replayed now.  As herald_relay_await_visible(). */
static void
relay_catch_up(Server *server)
{
	while (server->relay.is_active && (server->relay.is_to_note || server->relay.read < server->records))
		relay_proceed(server);
	if (server->relay.is_active)
		relay_note(server);
}

/* It ends, and is started again: not between what it sends and its note. */
static void
relay_again(Server *server)
{
	Relay	   *relay = &server->relay;

	if (!relay->is_active || relay->is_to_note)
		return;
	relay->read = relay->reread_from;
	relay->assembler = (Assembler) {0};
	relay->anchor = (HeraldWalAnchor) {0};
	relay->noted = relay->reached;
}

/* It reads from any place where no transaction is open, and passes over what has been replayed. */
static void
relay_begin(Server *server)
{
	Assembler	assembler = {0};
	int			from = 0;

	for (int i = 0; i < server->records; i++)
	{
		(void) assemble(&assembler, &server->wal[i]);
		if (assembler.open == 0 && draw(2) == 0)
			from = i + 1;
	}
	server->relay = (Relay) {
		.has_begun = true,
		.is_active = true,
		.read = from,
		.reread_from = from,
		.noted = {.wal = end_of_wal(server),.from = {.wal = wal_begin(from)}},
	};
	server->relay.reached = server->relay.noted;
}

static void
replay(Server *server)
{
	const Server *source;

	if (server->is_primary || server->source == NONE)
		return;
	source = &world.servers[server->source];
	if (server->records < source->flushed)
		server->wal[server->records] = source->wal[server->records];
	if (server->records < source->flushed)
		server->flushed = ++server->records;
}

/* ---- servers begin and end ---- */

/* Its queue is lost. */
static void
begin_run(Server *server)
{
	for (int t = 0; t < world.used; t++)
		if (world.transactions[t].commit.run == server->run && world.transactions[t].stage < FINISHED)
			world.transactions[t].stage = DEAD;
	server->run = ++world.last_run;
	server->head = server->settled = 0;
	server->last_logged = (HeraldCommitId) {0};
	server->anchor_count = 0;
	server->anchor_step = NO_ANCHOR;
	server->relay = (Relay) {0};
}

/* Standbys that have what their source has not get no more. */
static void
detach_standbys(void)
{
	for (int s = 0; s < SERVERS; s++)
	{
		Server	   *server = &world.servers[s];

		if (!server->is_primary && server->source != NONE && !is_prefix(server, &world.servers[server->source]))
			server->source = NONE;
	}
}

static void
restart_primary(Server *server)
{
	server->records -= (int) draw((unsigned) (server->records - server->flushed) + 1);
	server->flushed = server->records;
	begin_run(server);
	detach_standbys();
}

static void
restart_standby(Server *server)
{
	begin_run(server);
	relay_begin(server);
}

/* Does its WAL come from the other one, by any number of servers? */
static bool
follows(int server, int other)
{
	while (server != NONE && server != other)
		server = world.servers[server].is_primary ? NONE : world.servers[server].source;
	return server == other;
}

static void
follow(int server, int source)
{
	if (!follows(source, server) && is_prefix(&world.servers[server], &world.servers[source]))
		world.servers[server].source = source;
}

/* From a backup of the other one. */
static void
build_again(int number, int source)
{
	Server	   *server = &world.servers[number];

	if (follows(source, number))
		return;
	begin_run(server);
	server->is_primary = false;
	server->source = source;
	server->records = server->flushed = world.servers[source].flushed;
	memcpy(server->wal, world.servers[source].wal, sizeof(server->wal));
	relay_begin(server);
	detach_standbys();
}

static void
world_begin(void)
{
	memset(&world, 0, sizeof(world));
	for (int s = 0; s < SERVERS; s++)
	{
		world.servers[s].source = s == 0 ? NONE : 0;
		world.servers[s].is_primary = s == 0;
		begin_run(&world.servers[s]);
		if (s > 0)
			relay_begin(&world.servers[s]);
	}
	world.is_calm = draw(4) == 0;
	world.slow_percent = draw(3) == 0 ? 0 : draw(40);
	world.abort_percent = draw(15);
	world.flush_percent = draw(3) == 0 ? 100 : draw(100);
}

/* A step of a server, other than a failover. */
static void
server_step(void)
{
	Server	   *server = &world.servers[draw(SERVERS)];

	switch (draw(16))
	{
		case 0:
		case 1:
			reserve(server);
			break;
		case 2:
			anchor_proceed(server);
			break;
		case 3:
			server->flushed = server->records;
			break;
		case 4:
			if (draw(8) == 0)
				relay_again(server);
			break;
		case 5:
		case 6:
		case 7:
			replay(server);
			break;
		case 8:
		case 9:
		case 10:
			relay_proceed(server);
			break;
		case 11:
		case 12:
			settle(server);
			break;
		default:
			proceed_any();
	}
}

#endif							/* HERALD_TEST_WAL_WORLD_H */
