/*-------------------------------------------------------------------------
 *
 * wal_world_client.h
 *	  Clients that move between the servers of wal_world.h, and an oracle.
 *
 * A client receives what is in the queue of a server, keeps positions, is cut off at any moment, and resumes on any
 * server with any of its positions: at a place of the queue, or by the WAL.  What it does with receipts is what
 * notify/logged/ and notify/listener/ do.
 *
 * The oracle knows the servers' WAL, and what each position's client has received.  When a server says that a client
 * can resume, the server's WAL has all that the client has received [X3]; and each commit there of the client's database has
 * been received, or is in the history, or comes from the queue: only one of these [X2].  No commit is
 * received twice, or before one that was finished when it was reserved.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TEST_WAL_WORLD_CLIENT_H
#define HERALD_TEST_WAL_WORLD_CLIENT_H

#include "wal_world.h"

#define CLIENTS			2
#define POSITIONS		4		/* kept by a client */

typedef struct Position
{
	uint64_t	run;
	uint64_t	place;
	bool		has_moved;
	HeraldReceipt receipt;

	/* For the oracle: transactions. */
	uint64_t	received;
	uint64_t	perhaps;		/* those that the client may have missed: they were in the queue before it began */
} Position;

/* A commit in a history, and the latest anchor before it at which no transaction was open. */
typedef struct Past
{
	int			transaction;
	HeraldWalAnchor anchor;
} Past;

typedef enum ClientState
{
	OFF, CUT, IN_HISTORY, READS
} ClientState;

typedef enum Answer
{
	RESUMED,
	LATE,						/* the standby has not come so far */
	UNSETTLED,					/* a transaction before it is still committing */
	REFUSED
} Answer;

typedef struct Client
{
	ClientState state;
	unsigned	database;
	Server	   *server;
	uint64_t	place;
	HeraldReceipt receipt;
	Position	now;			/* the position that it has resumed with, and moves in the history; for the oracle always */
	HeraldWalHistory history;
	Past		past[TRANSACTIONS];
	int			past_count;
	int			past_next;
	bool		ends_early;		/* the history is not read up to the cut */
	Position	positions[POSITIONS];
	int			position_count;
} Client;

static Client clients[CLIENTS];

/* Of all worlds together. */
static struct
{
	unsigned long received;
	unsigned long by_place;
	unsigned long by_wal_here;	/* of this run, and not moved */
	unsigned long by_wal;
	unsigned long late;
	unsigned long unsettled;
	unsigned long refused;
	unsigned long refused_at_rest;
	unsigned long resumed_at_rest;
	unsigned long hidden_at_rest;	/* refused, since the witness is not found */
}			totals;


/* ---- the receipts of a session ---- */

static bool
is_relayed(const Server *server)
{
	return server->relay.is_active;
}

/* Everything before the place has been received.  As herald_mark_advance(). */
static void
mark_advance(HeraldReceipt *receipt, const Server *server, uint64_t place)
{
	HeraldWalAnchor latest = anchor_before(server, place);
	HeraldWalAnchor from = latest;
	const HeraldCommitId *witness = &receipt->furthest;

	/* A reader must find the message of the witness as well. */
	if (witness->end > latest.wal && witness->run == server->run && witness->place < place)
		from = anchor_before(server, witness->place);
	if (latest.wal > 0)
		herald_receipt_reach(receipt, from, latest);
	else if (server->relay.has_begun && server->relay.reached.place <= place)
		herald_receipt_relay(receipt, server->relay.reached.from, server->relay.reached.last);
}

/* Of a client that has received what is settled.  As herald_cursor_begin(). */
static HeraldReceipt
receipt_of_server(Server *server)
{
	HeraldReceipt receipt = {0};

	if (is_relayed(server))
		while (server->settled < server->relay.reached.place)
			settle(server);
	else
		herald_receipt_witness(&receipt, server->last_logged);
	mark_advance(&receipt, server, server->settled);
	return receipt;
}

/* ---- the oracle ---- */

/* What the queue delivers from the client's place on; on a standby also what the relay will put there. */
static uint64_t
to_come(const Server *server, uint64_t place)
{
	const Relay *relay = &server->relay;
	uint64_t	found = 0;

	for (uint64_t p = place; p < server->head; p++)
		if (server->queue[p] != NONE)
			found |= BIT(server->queue[p]);
	if (is_relayed(server))
		found |= committed_until(server, UINT64_MAX) & ~committed_until(server, wal_begin(relay->read)) &
			~committed_until(server, relay->noted.wal) & ~of_run(server->run);
	return found;
}

static void
check_resumed(const Client *client)
{
	uint64_t	in_wal = committed_until(client->server, UINT64_MAX);
	uint64_t	coming = to_come(client->server, client->place);
	uint64_t	past = 0;

	for (int i = client->past_next; i < client->past_count; i++)
		past |= BIT(client->past[i].transaction);
	must((client->now.received & ~in_wal) == 0, "[X3] the server has all that the client has received");
	if (!client->ends_early)
		must((in_wal & of_database(client->database) &
			  ~(client->now.received | client->now.perhaps | past | coming)) == 0, "[X2] none is missing");
	must((client->now.received & (past | coming) & of_database(client->database)) == 0, "[X2] none comes a second time");
	must((past & coming) == 0, "[X2] none is in the history and in the queue");
}

static void
receive(Client *client, int number)
{
	const Transaction *transaction = &world.transactions[number];

	must((client->now.received & BIT(number)) == 0, "[X2] each commit is received once");
	must(transaction->database == client->database, "only commits of the client's database are received");
	must((transaction->predecessors & of_database(client->database) &
		  ~(client->now.received | client->now.perhaps)) == 0, "what was finished before is received before");
	client->now.received |= BIT(number);
	totals.received++;
}

/* ---- steps of a client ---- */

static void
keep_position(Client *client, Position position)
{
	if (client->position_count == POSITIONS)
		memmove(client->positions, client->positions + 1, sizeof(Position) * (size_t) --client->position_count);
	client->positions[client->position_count++] = position;
}

/* The position of this moment. */
static Position
position_now(Client *client)
{
	if (client->state == READS)
	{
		mark_advance(&client->receipt, client->server, client->place);
		client->now.run = client->server->run;
		client->now.place = client->place;
		client->now.has_moved = false;
		client->now.receipt = client->receipt;
	}
	return client->now;
}

static void
cut_off(Client *client)
{
	client->state = OFF;
	client->past_count = client->past_next = 0;
}

/* Without a position: what is settled counts as received. */
static void
begin(Client *client, Server *server)
{
	const Relay *relay = &server->relay;

	anchor_ensure(server);
	*client = (Client) {.state = READS,.database = client->database,.server = server};
	client->receipt = receipt_of_server(server);
	client->place = server->settled;
	if (is_relayed(server))
		client->now.received = committed_until(server, relay->reached.wal);
	else
		client->now.received = committed_until(server, UINT64_MAX) & ~of_run(server->run) & ~to_come(server, server->settled);
	for (uint64_t p = 0; p < server->settled; p++)
	{
		int			number = server->queue[p];

		if (number == NONE || world.transactions[number].commit.end == 0)
			continue;
		if (is_relayed(server))
			client->now.perhaps |= BIT(number);
		else
			client->now.received |= BIT(number);
	}
}

static void
resume_at_place(Client *client, const Position *position)
{
	client->place = position->place;
	client->state = READS;
	client->receipt = position->receipt;
	check_resumed(client);
}

/* As shows_conflicts() of logged/cut.c. */
static bool
shows_conflicts(const Server *server, const Position *position, uint64_t place)
{
	if (server->relay.has_begun && place < server->relay.reached.place)
		return false;
	return position->receipt.from.wal <= anchor_before(server, place).wal;
}

/* The history up to the end of WAL of the cut; reading may end early, if `wanted` commits are there. */
static Answer
read_history(Client *client, uint64_t cut_wal, bool is_in_order, int wanted)
{
	HeraldWalHistory *history = &client->history;
	const Server *server = client->server;
	Assembler	assembler = {0};
	HeraldWalAnchor anchor = {0};

	if (history->received.from.wal == 0 || history->received.from.wal >= cut_wal)
		return REFUSED;
	for (int i = (int) history->received.from.wal - 1; wal_end(i) <= cut_wal; i++)
	{
		const Record *record = &server->wal[i];
		int			number = assemble(&assembler, record);

		if (client->past_count >= wanted && history->has_witness)
		{
			client->ends_early = true;
			return RESUMED;
		}
		if (record->kind == ANCHOR)
		{
			HeraldWalAnchor here = {wal_begin(i), record->run};

			herald_wal_history_anchor(history, here);
			if (assembler.open == 0)
				anchor = here;
		}
		if (number == NONE)
			continue;
		switch (herald_wal_history_commit(history, world.transactions[number].commit,
										  world.transactions[number].database == client->database))
		{
			case HERALD_WAL_PASS_OVER:
				break;
			case HERALD_WAL_DELIVER:
				must(herald_wal_history_concerns(history, wal_end(i)), "what is delivered is beyond what was received");
				client->past[client->past_count++] = (Past) {number, anchor};
				break;
			case HERALD_WAL_UNDECIDED:
				return UNSETTLED;
		}
	}
	herald_wal_history_end(history, is_in_order);
	return history->has_witness ? RESUMED : REFUSED;
}

static Answer
take_answer(Client *client, Answer answer)
{
	totals.late += answer == LATE;
	totals.unsettled += answer == UNSETTLED;
	totals.refused += answer == REFUSED;
	if (answer != RESUMED)
	{
		cut_off(client);
		return answer;
	}
	totals.by_wal_here += client->now.run == client->server->run && !client->now.has_moved;
	totals.by_wal++;
	client->state = IN_HISTORY;
	client->place = client->history.cut;
	check_resumed(client);
	return RESUMED;
}

/* The second half of the cut on a primary. */
static Answer
finish_cut(Client *client, int wanted)
{
	uint64_t	wal = end_of_wal(client->server);

	client->server->flushed = client->server->records;
	if (client->now.receipt.furthest.end > wal)
		return take_answer(client, REFUSED);
	return take_answer(client, read_history(client, wal, false, wanted));
}

static Answer
resume_by_wal(Client *client, int wanted)
{
	const Server *server = client->server;
	const Position *position = &client->now;
	const Reached *reached = &server->relay.reached;

	client->history = (HeraldWalHistory) {
		.run = position->run,
		.place = position->place,
		.received = position->receipt,
		.own_run = server->run,
		.cut = is_relayed(server) ? reached->place : server->settled,
		.receipt = position->receipt,
	};
	if (is_relayed(server))
	{
		if (reached->wal < position->receipt.furthest.end || reached->wal <= position->receipt.from.wal)
			return take_answer(client, LATE);
		return take_answer(client, read_history(client, reached->wal, true, wanted));
	}
	if (server->settled < server->head && !shows_conflicts(server, position, server->settled))
		return take_answer(client, UNSETTLED);
	client->state = CUT;
	return RESUMED;
}

static void
let_servers_run(void)
{
	for (unsigned i = world.is_at_rest ? 0 : draw(8); i > 0; i--)
		server_step();
}

/* A session resumes.  On a primary by the WAL, its answer is that of finish_cut(). */
static Answer
resume(Client *client, Server *server, const Position *position, bool at_place, int wanted)
{
	relay_catch_up(server);
	let_servers_run();
	anchor_ensure(server);
	client->server = server;
	client->now = *position;
	client->past_count = client->past_next = 0;
	client->ends_early = false;
	client->receipt = receipt_of_server(server);
	let_servers_run();
	if (!at_place)
		return resume_by_wal(client, wanted);
	totals.by_place++;
	resume_at_place(client, position);
	return RESUMED;
}

static bool
can_resume_at_place(const Server *server, const Position *position)
{
	return position->run == server->run && !position->has_moved;
}

static void
receive_past(Client *client)
{
	const Past *past = &client->past[client->past_next];
	HeraldCommitId commit;
	HeraldReceipt before;

	if (client->past_next < client->past_count)
	{
		client->past_next++;
		commit = world.transactions[past->transaction].commit;
		receive(client, past->transaction);
		before = client->now.receipt;
		herald_receipt_read(&client->now.receipt, past->anchor, commit);
		must(client->now.receipt.from.wal >= before.from.wal && client->now.receipt.done > before.done, "a history goes on");
		client->now.has_moved = true;
	}
	else if (client->ends_early)
		cut_off(client);
	else
	{
		client->receipt = client->history.receipt;
		client->state = READS;
	}
}

static void
receive_next(Client *client)
{
	int			number;

	if (client->place >= client->server->settled)
		return;
	number = client->server->queue[client->place++];
	if (number == NONE || world.transactions[number].database != client->database ||
		world.transactions[number].stage == ABORTED)
		return;
	receive(client, number);
	herald_receipt_receive(&client->receipt, world.transactions[number].commit, client->server->run);
}

static void
resume_any(Client *client)
{
	Server	   *server = &world.servers[draw(SERVERS)];
	Position	position;

	if (client->position_count == 0 || draw(16) == 0)
	{
		begin(client, server);
		return;
	}
	position = client->positions[draw(4) == 0 ? draw((unsigned) client->position_count) : (unsigned) client->position_count - 1];
	(void) resume(client, server, &position, can_resume_at_place(server, &position) && draw(2) == 0,
				  draw(4) == 0 ? (int) draw(3) : TRANSACTIONS);
}

static void
client_step(Client *client)
{
	unsigned	choice = draw(16);

	if (client->state == OFF)
		resume_any(client);
	else if (client->state == CUT && choice < 8)
		(void) finish_cut(client, draw(4) == 0 ? (int) draw(3) : TRANSACTIONS);
	else if (choice == 0)
	{
		if (draw(4) > 0)
			keep_position(client, position_now(client));
		cut_off(client);
	}
	else if (choice <= 3)
		keep_position(client, position_now(client));
	else if (client->state == IN_HISTORY)
		receive_past(client);
	else if (client->state == READS)
		receive_next(client);
}

/* The server begins another run. */
static void
end_sessions(const Server *server)
{
	for (int c = 0; c < CLIENTS; c++)
	{
		if (clients[c].state == OFF || clients[c].server != server)
			continue;
		if (draw(2) == 0)
			keep_position(&clients[c], position_now(&clients[c]));
		cut_off(&clients[c]);
	}
}

static void
fail_over(void)
{
	int			number = (int) draw(SERVERS);
	Server	   *server = &world.servers[number];

	switch (draw(8))
	{
		case 0:
		case 1:
			end_sessions(server);
			if (server->is_primary)
				restart_primary(server);
			else
				restart_standby(server);
			break;
		case 2:
			server->is_primary = true;
			break;
		case 3:
			end_sessions(server);
			build_again(number, (int) draw(SERVERS));
			break;
		default:
			if (!server->is_primary)
				follow(number, (int) draw(SERVERS));
	}
}

static void
world_step(void)
{
	if (!world.is_calm && draw(64) == 0)
		fail_over();
	else if (draw(4) == 0)
		client_step(&clients[draw(CLIENTS)]);
	else
		server_step();
}

/* ---- when nothing happens any more ---- */

/* All transactions end, all standbys replay what there is, and all relays send it. */
static void
world_come_to_rest(void)
{
	world.is_at_rest = true;
	for (int t = 0; t < world.used; t++)
		while (world.transactions[t].stage < FINISHED)
			proceed(t);
	for (int s = 0; s < SERVERS; s++)
		world.servers[s].flushed = world.servers[s].records;
	for (int round = 0; round < SERVERS; round++)
		for (int s = 0; s < SERVERS; s++)
		{
			Server	   *server = &world.servers[s];

			for (int i = 0; i < RECORDS; i++)
				replay(server);
			relay_catch_up(server);
			if (server->is_primary)
				relay_proceed(server);
			while (server->settled < server->head)
				settle(server);
		}
}

/* Is this record there, and does it begin at this place or later? */
static bool
has_record(const Server *server, RecordKind kind, int transaction, uint64_t from)
{
	for (int i = (int) from - 1; i < server->records; i++)
		if (server->wal[i].kind == kind && server->wal[i].transaction == transaction)
			return true;
	return false;
}

/*
 * Does the server's WAL have what the position is about?  A reader does not find a witness whose message is before
 * `from`, as that of a server's last commit can be when it is joined with the receipt of a history.
 */
static bool
is_known(const Server *server, const HeraldReceipt *receipt)
{
	if (receipt->from.wal == 0 || receipt->from.wal > (uint64_t) server->records)
		return false;
	if (receipt->furthest.end == 0)
	{
		const Record *anchor = &server->wal[receipt->from.wal - 1];

		return anchor->kind == ANCHOR && anchor->run == receipt->from.run;
	}
	for (int t = 0; t < world.used; t++)
		if (memcmp(&world.transactions[t].commit, &receipt->furthest, sizeof(receipt->furthest)) == 0 &&
			has_record(server, COMMIT, t, receipt->from.wal))
		{
			bool		is_found = has_record(server, MESSAGE, t, receipt->from.wal);

			totals.hidden_at_rest += !is_found;
			return is_found;
		}
	return false;
}

/* It receives all there is; and then nothing, with its last position. */
static void
receive_all(Client *client)
{
	while (client->state == IN_HISTORY)
		receive_past(client);
	while (client->place < client->server->settled)
		receive_next(client);
	must((committed_until(client->server, UINT64_MAX) & of_database(client->database) &
		  ~(client->now.received | client->now.perhaps)) == 0, "[X2] each commit has been received");
}

static void
check_position(Client *client, Server *server, const Position *position)
{
	Answer		answer;

	if (can_resume_at_place(server, position))
	{
		(void) resume(client, server, position, true, TRANSACTIONS);
		receive_all(client);
	}
	answer = resume(client, server, position, false, TRANSACTIONS);
	if (client->state == CUT)
		answer = finish_cut(client, TRANSACTIONS);
	must((answer == RESUMED) == is_known(server, &position->receipt),
		 "a position is refused only where the WAL is not what it is about");
	totals.refused_at_rest += answer != RESUMED;
	totals.resumed_at_rest += answer == RESUMED;
	if (answer != RESUMED)
		return;
	must(client->now.received == position->received, "nothing is received by resuming");
	receive_all(client);
}

/* Guards: at rest each position is good on each server that has its WAL, for all that is there. */
static void
check_at_rest(void)
{
	world_come_to_rest();
	for (int c = 0; c < CLIENTS; c++)
		for (int p = 0; p < clients[c].position_count; p++)
			for (int s = 0; s < SERVERS; s++)
			{
				Position	position = clients[c].positions[p];

				check_position(&clients[c], &world.servers[s], &position);
				if (clients[c].state == OFF)
					continue;

				/* Then there is nothing that it has missed. */
				position = position_now(&clients[c]);
				check_position(&clients[c], &world.servers[s], &position);
				must(clients[c].past_count == 0, "the last position misses nothing");
				cut_off(&clients[c]);
			}
}

static void
begin_story(void)
{
	world_begin();
	for (int c = 0; c < CLIENTS; c++)
		clients[c] = (Client) {.database = (unsigned) c % DATABASES};
}

#endif							/* HERALD_TEST_WAL_WORLD_CLIENT_H */
