/*
 * logged.pml
 *	  Resuming across two orders, that of reservations and that of commits, and a failover:
 *	  notify/cursor/ (cursor.c, cut.c, wal_source.c), notify/position/anchor.c,
 *	  notify/relay/relay.c, workers/relay_worker.c, core/receipt.c, core/wal_history.c; src/notify/cursor/README.md has the argument [X1]-[X3].
 *
 * Processes: server A, a primary; server B, its standby, with a relay; and a client. TRANSACTIONS are
 * sent by whichever server is a primary: each reserves, writes the last part of its message, writes
 * its commit record, and finishes. A primary writes ANCHORS anchors besides its first one. B
 * replays A's WAL record by record; it may be promoted at any moment (PROMOTES), and what A writes then
 * is not in B's WAL, although at the same places. A goes on; it may also crash and start again
 * (CRASHES), with a new run, an empty queue, and its WAL as far as that was flushed. B may restart
 * (RESTARTS), with a new run and an empty queue: its relay reads again from any place where no
 * transaction is between its message and its commit, and passes over what has been replayed. The client
 * begins on either server at any moment, is cut off at any moment, and resumes on either server,
 * RESUMES times; with LOSES by the WAL on its own server as well, as when the queue has lost what comes next.
 *
 * Simpler than in C: each transaction has one notification, and its message one part. What is
 * replayed was flushed. Dispatched and settled are one (dispatch.pml has both), and nothing is
 * recycled (resume.pml). A session is cut off with a position of that moment: a client with an
 * older one was cut off earlier, and idle meanwhile. On a primary a session waits for what has a place, but not
 * for ever; here it never waits. All WAL is there, and no server runs without the module (coverage.pml).
 *
 * Checked: whatever the client receives, it has not received before. When the server says
 * that the client can resume, all that the client has received is in this server's WAL; and each
 * commit there has been received, is in the history, or comes from the queue: only one of
 * these. Without a crash, restart or promotion the answer is always yes, unless a commit hangs
 * or the relay has not come so far.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef TRANSACTIONS
#define TRANSACTIONS	2
#endif
#ifndef ANCHORS
#define ANCHORS			1
#endif
#ifndef PROMOTES
#define PROMOTES		0
#endif
#ifndef CRASHES
#define CRASHES			0
#endif
#ifndef RESTARTS
#define RESTARTS		0
#endif
#ifndef RESUMES
#define RESUMES			1
#endif

#define A				0
#define B				1
#define OTHER_RUN(s)	((s) + 3)	/* after its crash or restart; before that it is s + 1 */

#define LAST			TRANSACTIONS
#define BIT(t)			(1 << (t))

/* A place in the WAL is the number of a record. 0: none. */
#define WAL_SIZE		(1 + 2 * TRANSACTIONS + 2 * ANCHORS + 2 + 1)
#define MESSAGE(t)		(16 + (t))
#define COMMIT(t)		(32 + (t))
#define ANCHOR(run)		(48 + (run))
#define IS_COMMIT(r)	((r) > 32 && (r) <= 32 + LAST)
#define IS_MESSAGE(r)	((r) > 16 && (r) <= 16 + LAST)
#define IS_ANCHOR(r)	((r) > 48)
#define WAL(s, at)		wal[(s) * WAL_SIZE + (at)]
#define QUEUE(s, at)	queue[(s) * (LAST + 1) + (at)]
#define LIST(s, i)		((s) * (ANCHORS + 1) + (i))

mtype = { UNUSED, RESERVED, LOGGED, COMMITTED, FINISHED, DEAD };		/* a transaction */
mtype = { NEW, OFF, CUT, HISTORY, READS, REFUSED };						/* the client */

byte wal[2 * WAL_SIZE];
byte end[2];					/* the last record */
byte flushed;					/* on A */

byte runs[2];
byte queue[2 * (LAST + 1)];		/* transactions */
byte head[2], settled[2];
byte last_logged[2];			/* the transaction with the furthest commit */

mtype stage[LAST + 1];
byte run_of[LAST + 1], place_of[LAST + 1], commit_of[LAST + 1];
byte used;						/* transactions */

byte anchors[2];				/* published, on each server */
byte anchor_wal[2 * (ANCHORS + 1)], anchor_place[2 * (ANCHORS + 1)];
byte pending[2], pending_place[2];

bit relay_is_active;
bit is_promoted;
byte has_read;					/* the relay, of B's WAL */
byte relayed;					/* the transaction that it has read and not put into the queue; 0: none */
byte reached_wal, reached_place;
byte relay_from, relay_begin;	/* it reads from here; what is beyond there it puts into the queue */
bit passes;						/* it has not come to relay_begin */
byte crashes, restarts;

/* The client, its session, and its token. */
mtype state = NEW;
bit at;							/* the server */
byte position;					/* in its queue; in a history, the cut */
byte cut_end;
byte from, done, furthest, witness;		/* HeraldReceipt; the witness of an anchor is its run */
byte t_run, t_place;
bit t_moved;
byte t_from, t_done, t_furthest, t_witness;
byte history;					/* bits: still to be delivered */
byte received, before;			/* bits, only for the checks; before: may have been sent before it began */
byte resumes;

#define IS_RELAYED(s)	((s) == B && relay_is_active)
#define IS_FINISHED(s, t)	(run_of[t] != runs[s] || stage[t] == FINISHED)

/* ---- core/receipt.c, cursor.c ---- */

inline mark_witness(t)
{
	if
	:: commit_of[t] > furthest && commit_of[t] > from -> furthest = commit_of[t]; witness = t
	:: else
	fi
}

inline mark_join(o_from, o_done, o_furthest, o_witness)
{
	done = (o_done > done -> o_done : done);
	if
	:: o_from > from ->
		from = o_from;
		if
		:: furthest <= from -> furthest = 0; witness = o_witness
		:: else
		fi
	:: else
	fi;
	if
	:: o_furthest > furthest && o_furthest > from -> furthest = o_furthest; witness = o_witness
	:: else
	fi
}

/* HeraldReached.from and .last: the relay finds the same each time. Into found and last. */
inline relay_look(to)
{
	found = relay_from; open = 0; last = 0; met = 0;
	i = relay_from + 1;
	do
	:: i <= to && !passes ->
		record = WAL(B, i);
		if
		:: IS_MESSAGE(record) -> open = open | BIT(record - 16); anchor_run = run_of[record - 16]
#ifdef PASSED_IS_NOT_NOTED
		:: IS_COMMIT(record) && i <= relay_begin -> open = open & ~BIT(record - 32)
#endif
		:: IS_COMMIT(record) -> open = open & ~BIT(record - 32); last = record - 32
		:: else ->
			if
			:: record != ANCHOR(anchor_run) -> open = 0; anchor_run = record - 48
			:: else
			fi
		fi;
		i++
	:: else -> break
	od;
	/* the latest anchor below the first message of each that is open */
	anchor_run = 0;
	i = relay_from + 1;
	do
	:: i <= to && !passes ->
		record = WAL(B, i);
		if
#ifndef FROM_BEYOND_OPEN
		:: IS_MESSAGE(record) && (open & BIT(record - 16)) -> break
#endif
		:: IS_MESSAGE(record) && record == MESSAGE(last) -> met = 1
#ifdef FROM_BEYOND_WITNESS
		:: IS_ANCHOR(record) ->
#else
		:: IS_ANCHOR(record) && (!met || i > commit_of[last]) ->
#endif
			found = i; anchor_run = record - 48
		:: else
		fi;
		i++
	:: else -> break
	od;
	met = 0
}

/* The latest anchor below a commit at which no transaction was open, as far as its message shows. Into found. */
inline anchor_below(s, to)
{
	found = 0; open = 0;
	i = 1;
	do
	:: i < to ->
		record = WAL(s, i);
		if
		:: IS_MESSAGE(record) -> open = open | BIT(record - 16)
		:: IS_COMMIT(record) -> open = open & ~BIT(record - 32)
#ifdef ANCHOR_WITHIN_OPEN
		:: IS_ANCHOR(record) -> found = i
#else
		:: IS_ANCHOR(record) && open == 0 -> found = i
#endif
		:: else
		fi;
		i++
	:: else -> break
	od;
	open = 0; record = 0; i = 0
}

/* A history from this anchor must meet the witness with its message. */
#ifdef FROM_BEYOND_WITNESS
#define MEETS_WITNESS(s, i)	true
#else
#define MEETS_WITNESS(s, i)	(furthest == 0 || anchor_wal[LIST(s, i)] > furthest || \
	run_of[witness] != runs[s] || anchor_place[LIST(s, i)] <= place_of[witness])
#endif

/* advance() */
inline mark_advance(s, place)
{
	found = 0; last = 0; open = 0; anchor_run = 0;
	i = 0;
	do
	:: i < anchors[s] ->
		if
		:: anchor_place[LIST(s, i)] <= place && MEETS_WITNESS(s, i) ->
			found = anchor_wal[LIST(s, i)]
		:: else
		fi;
		i++
	:: else -> break
	od;
	if
	:: found != 0 ->
		record = WAL(s, found) - 48;
		mark_join(found, found, 0, record)
	:: found == 0 && s == B && reached_place <= place ->
		relay_look(reached_wal);
		open = (commit_of[last] > found -> commit_of[last] : found);
#ifdef DONE_IS_READ_POSITION
		open = reached_wal;
#endif
		if
		:: commit_of[last] > found -> mark_join(found, open, commit_of[last], last)
		:: else -> mark_join(found, open, 0, anchor_run)
		fi
	:: else
	fi;
	found = 0; last = 0; open = 0; anchor_run = 0; record = 0; i = 0
}

/* ---- the client's session ends: it has a token of this moment ---- */

inline clear_mark()
{
	from = 0; done = 0; furthest = 0; witness = 0
}

inline cut_off()
{
	if
	:: state == READS ->
		mark_advance(at, position);
		t_run = runs[at]; t_place = position; t_moved = 0;
		t_from = from; t_done = done; t_furthest = furthest; t_witness = witness
	:: else
	fi;
	clear_mark();
	history = 0; position = 0; cut_end = 0; at = 0;
	state = OFF
}

/* ---- senders and the housekeeper of a primary ---- */

inline insert(s, what)
{
	end[s]++;
	WAL(s, end[s]) = what
}

inline first_anchor(s, place)
{
	insert(s, ANCHOR(runs[s]));
	anchors[s] = 1;
	anchor_wal[LIST(s, 0)] = end[s];
	anchor_place[LIST(s, 0)] = place
}

inline reserve(s)
{
	used++;
	stage[used] = RESERVED;
	run_of[used] = runs[s];
	place_of[used] = head[s];
	QUEUE(s, head[s]) = used;
	head[s]++
}

inline flush(s)
{
	if
	:: s == A -> flushed = end[s]
	:: else
	fi
}

inline anchor_begin(s)
{
#ifdef HEAD_BEFORE_ANCHOR
	pending[s] = 1;
	pending_place[s] = head[s]
#else
	insert(s, ANCHOR(runs[s]));
	pending[s] = end[s]
#endif
}

inline anchor_publish(s)
{
#ifdef HEAD_BEFORE_ANCHOR
	insert(s, ANCHOR(runs[s]));
	pending[s] = end[s];
#else
	pending_place[s] = head[s];		/* [X1] */
#endif
	anchor_wal[LIST(s, anchors[s])] = pending[s];
	anchor_place[LIST(s, anchors[s])] = pending_place[s];
	anchors[s]++;
	flush(s);
	pending[s] = 0;
	pending_place[s] = 0
}

#ifdef SENDERS_DO_NOT_WAIT
#define MAY_SEND(s)		((s) == A || is_promoted)
#else
#define MAY_SEND(s)		((s) == A || (is_promoted && !relay_is_active))
#endif

/* One transaction; those of a server's earlier run are dead. */
inline proceed(s, t)
{
	if
	:: stage[t] == RESERVED && run_of[t] == runs[s] ->
		insert(s, MESSAGE(t));
		stage[t] = LOGGED
	:: stage[t] == LOGGED && run_of[t] == runs[s] ->
		insert(s, COMMIT(t));
		commit_of[t] = end[s];
		stage[t] = COMMITTED
	:: stage[t] == COMMITTED && run_of[t] == runs[s] ->
		if
		:: commit_of[t] > commit_of[last_logged[s]] || last_logged[s] == 0 -> last_logged[s] = t
		:: else
		fi;
		stage[t] = FINISHED
	fi
}

#define CAN_PROCEED(s, t)	(run_of[t] == runs[s] && (stage[t] == RESERVED || stage[t] == LOGGED || stage[t] == COMMITTED))

inline serve(s)
{
end_server:
	do
	:: atomic { MAY_SEND(s) && used < LAST -> reserve(s) }
	:: atomic { used >= 1 && CAN_PROCEED(s, 1) -> proceed(s, 1) }
	:: atomic { used >= 2 && CAN_PROCEED(s, 2) -> proceed(s, 2) }
#if TRANSACTIONS > 2
	:: atomic { used >= 3 && CAN_PROCEED(s, 3) -> proceed(s, 3) }
#endif
#if TRANSACTIONS > 3
	:: atomic { used >= 4 && CAN_PROCEED(s, 4) -> proceed(s, 4) }
#endif
	:: atomic { settled[s] < head[s] && IS_FINISHED(s, QUEUE(s, settled[s])) -> settled[s]++ }
	:: atomic { MAY_SEND(s) && !IS_RELAYED(s) && pending[s] == 0 && anchors[s] <= ANCHORS -> anchor_begin(s) }
	:: atomic { pending[s] != 0 -> anchor_publish(s) }
	:: atomic { s == B && !is_promoted && end[B] < end[A] ->
			end[B]++;
			WAL(B, end[B]) = WAL(A, end[B]);
			flushed = (flushed < end[B] -> end[B] : flushed) }
	:: atomic { s == B && !is_promoted && PROMOTES -> is_promoted = 1 }
	:: atomic { s == A && crashes < CRASHES -> crash() }
	:: atomic { s == B && !is_promoted && restarts < RESTARTS -> restart() }
	od
}

/* It loses any number of records that were not flushed; so has no standby got these. */
inline crash()
{
	crashes++;
	if
	:: at == A && state != OFF && state != NEW && state != REFUSED -> cut_off()
	:: else
	fi;
	do
	:: end[A] > flushed -> WAL(A, end[A]) = 0; end[A]--
	:: break
	od;
	i = 1;
	do
	:: i <= used ->
		if
		:: run_of[i] == runs[A] ->
			stage[i] = DEAD;
			QUEUE(A, place_of[i]) = 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	head[A] = 0; settled[A] = 0; last_logged[A] = 0; pending[A] = 0; pending_place[A] = 0;
	do
	:: anchors[A] > 0 -> anchors[A]--; anchor_wal[LIST(A, anchors[A])] = 0; anchor_place[LIST(A, anchors[A])] = 0
	:: else -> break
	od;
	runs[A] = OTHER_RUN(A);
	first_anchor(A, 0);
	flushed = end[A]
}

/* Of B, a standby. */
inline restart()
{
	restarts++;
	if
	:: at == B && state != OFF && state != NEW && state != REFUSED -> cut_off()
	:: else
	fi;
	do
	:: head[B] > 0 -> head[B]--; QUEUE(B, head[B]) = 0
	:: else -> break
	od;
	settled[B] = 0; last_logged[B] = 0; relayed = 0;
	runs[B] = OTHER_RUN(B);
	relay_from = 0; anchor_run = 0; open = 0;
	i = 0;
	do
	:: i < end[B] ->
		i++;
		record = WAL(B, i);
		if
		:: IS_MESSAGE(record) -> open = open | BIT(record - 16); anchor_run = run_of[record - 16]
		:: IS_COMMIT(record) -> open = open & ~BIT(record - 32)
		:: else ->
			if
			:: record != ANCHOR(anchor_run) -> open = 0; anchor_run = record - 48
			:: else
			fi
		fi;
		if
#ifdef BEGINS_WITHIN_OPEN
		:: relay_from = i
#else
		:: open == 0 -> relay_from = i
#endif
		:: true
		fi
	:: else -> break
	od;
	relay_begin = end[B]; has_read = end[B]; reached_wal = end[B]; reached_place = 0;
	passes = 1;
	i = 0; anchor_run = 0; open = 0; record = 0
}

active proctype server_a()
{
	byte i, found, open, last, anchor_run, record;
	bit met;

	atomic {
		runs[A] = A + 1; runs[B] = B + 1;
		first_anchor(A, 0);
		WAL(B, 1) = ANCHOR(A + 1);
		end[B] = 1; has_read = 1; reached_wal = 1; flushed = 1;
		relay_is_active = 1
	};
end_a:							/* Spin has a state of its own for a loop that has made no step */
	serve(A)
}

active proctype server_b()
{
	byte i, found, open, last, anchor_run, record;
	bit met;

	runs[B] != 0;
end_b:
	serve(B)
}

inline relay_put()
{
	if
	:: relayed != 0 ->
		QUEUE(B, head[B]) = relayed;
		head[B]++;
		last_logged[B] = relayed
	:: else
	fi;
	relayed = 0
}

/* workers/relay_worker.c. What it reads of B's own run, after the promotion, is not for it. */
active proctype relay()
{
	byte record;

	runs[B] != 0;
end_relay:
	do
	:: atomic { passes -> passes = 0 }
	:: atomic { !passes && has_read < end[B] ->
			has_read++;
			record = WAL(B, has_read);
			relayed = (IS_COMMIT(record) && run_of[record - 32] != runs[B] -> record - 32 : 0);
			record = 0;
#ifdef WAL_BEFORE_BATCH
			reached_wal = has_read;
			reached_place = head[B]
#else
			relay_put()
#endif
		};
		atomic {
#ifdef WAL_BEFORE_BATCH
			relay_put()
#else
			reached_wal = has_read;
			reached_place = head[B]
#endif
		}
	:: atomic { is_promoted && !passes && has_read == end[B] ->
			relay_is_active = 0;
			first_anchor(B, reached_place);
			break
		}
	od
}

/* ---- cursor.c, wal_source.c and core/wal_history.c ---- */

/* The session joins: herald_cursor_begin(). */
inline join(s)
{
	at = s;
	clear_mark();
	if
	:: !IS_RELAYED(s) && last_logged[s] != 0 -> mark_witness(last_logged[s])
	:: else
	fi;
	mark_advance(s, settled[s])
}

/* Bits of what is in the server's queue at this place or beyond, or comes there by the relay. */
inline to_come(s, place)
{
	coming = 0;
	i = place;
	do
	:: i < head[s] -> coming = coming | BIT(QUEUE(s, i)); i++
	:: else -> break
	od;
	if
	:: IS_RELAYED(s) ->
		coming = coming | BIT(relayed);
		i = has_read + 1;
		do
		:: i <= end[s] ->
			if
			:: IS_COMMIT(WAL(s, i)) && run_of[WAL(s, i) - 32] != runs[s] -> coming = coming | BIT(WAL(s, i) - 32)
			:: else
			fi;
			i++
		:: else -> break
		od
	:: else
	fi
}

/* Bits of what is committed in the server's WAL. */
inline committed_in(s)
{
	in_wal = 0;
	i = 1;
	do
	:: i <= end[s] ->
		if
		:: IS_COMMIT(WAL(s, i)) -> in_wal = in_wal | BIT(WAL(s, i) - 32)
		:: else
		fi;
		i++
	:: else -> break
	od
}

inline check()
{
	committed_in(at);
	assert((received & ~in_wal) == 0);						/* [X3] */
	to_come(at, position);
	coming = coming & ~BIT(0);
	assert((in_wal & ~(before | received | history | coming)) == 0);	/* [X2]: none is missing */
	assert((received & (history | coming)) == 0);			/* nor doubled */
	assert((history & coming) == 0);
	i = 0; in_wal = 0; coming = 0
}

/* herald_wal_source_read(): from the token to the cut. */
inline read_history()
{
	is_good = 1;
	has_conflict = 0; has_left = 0;
	has_witness = (t_furthest == 0);
	open = 0; last = 0;
#ifndef CONFLICT_BELOW_FROM
	/* What is left to the queue must be beyond `from`: else it is not known whether the client has it. */
	if
	:: !IS_RELAYED(at) && position < head[at] ->
		i = 0;
		do
		:: i < anchors[at] ->
			open = (anchor_place[LIST(at, i)] <= position -> anchor_wal[LIST(at, i)] : open);
			i++
		:: else -> break
		od;
		has_conflict = t_from > open;
		is_good = !has_conflict;
		open = 0; i = 0
	:: else
	fi;
#endif
	if
	:: !is_good || t_from == 0 || t_from > cut_end -> is_good = 0
	:: else ->
#ifndef ANCHOR_BY_PLACE
		if
		:: t_furthest == 0 && WAL(at, t_from) != ANCHOR(t_witness) -> is_good = 0
		:: else
		fi;
#endif
		i = t_from + 1;
		do
		:: is_good && i <= cut_end ->
			record = WAL(at, i);
			if
			:: IS_MESSAGE(record) -> open = open | BIT(record - 16)
			:: IS_COMMIT(record) && (open & BIT(record - 32)) ->
				record = record - 32;
				if
#ifdef WITNESS_BY_PLACE
				:: i == t_furthest -> has_witness = 1
#else
				:: i == t_furthest && record == t_witness -> has_witness = 1
#endif
				:: else
				fi;
				if
#ifndef NO_RULE_3
				:: run_of[record] == runs[at] && place_of[record] >= position ->
					has_left = 1;
#ifndef NO_CONFLICT_CHECK
					if
					:: i <= t_done || i <= t_furthest -> is_good = 0; has_conflict = 1
					:: else
					fi
#else
					skip
#endif
#endif
				:: else ->
					last = (i > t_furthest -> record : last);
					if
#ifndef NO_RULE_1
					:: i <= t_done
#endif
#ifndef NO_RULE_2
					:: run_of[record] == t_run && place_of[record] < t_place
#endif
#ifndef LEFT_BEFORE
					:: has_left -> is_good = 0; has_conflict = 1
					:: else -> history = history | BIT(record)
#else
					:: else -> history = history | BIT(record)
#endif
					fi
				fi
			:: else
			fi;
			i++
		:: else -> break
		od
	fi;
#ifdef NO_WITNESS
	has_witness = 1;
#endif
	is_good = is_good && has_witness;
	if
	:: is_good ->
		open = t_furthest;
		record = t_witness;
		if
		:: last != 0 -> open = commit_of[last]; record = last
		:: else
		fi;
		i = (IS_RELAYED(at) && open > t_done -> open : t_done);
		from = t_from; done = i; furthest = open; witness = record
	:: else -> history = 0
	fi;
	open = 0; last = 0; i = 0; record = 0; has_witness = 0; has_left = 0
}

/* The answer. */
inline answer()
{
	if
	:: is_good -> check(); state = HISTORY
	:: else ->
#ifdef ANSWERS
		assert(crashes > 0 || restarts > 0 || is_promoted || has_conflict || t_from == 0);
#endif
		state = REFUSED; history = 0;
		clear_mark();
		position = 0; cut_end = 0; at = 0; received = 0; before = 0;
		t_run = 0; t_place = 0; t_moved = 0; t_from = 0; t_done = 0; t_furthest = 0; t_witness = 0
	fi;
	is_good = 0; has_conflict = 0
}

inline resume(s)
{
	resumes++;
	join(s);
	if
#ifdef MOVED_IS_IGNORED
	:: t_run == runs[s] ->
#else
	:: t_run == runs[s] && !t_moved ->
#endif
		position = t_place;
#ifndef MARK_OF_JOIN
		from = t_from; done = t_done; furthest = t_furthest; witness = t_witness;
#endif
		state = READS;
		check()
#ifdef LOSES
	:: true ->						/* or the queue has lost what comes next */
#else
	:: else ->
#endif
		state = CUT;
#ifdef END_BEFORE_SETTLED
		cut_end = end[s];
#else
		position = settled[s];
#endif
		if
		:: IS_RELAYED(s) ->
			position = reached_place;
			cut_end = reached_wal;
			read_history();
			answer()
		:: else
		fi
	fi
}

inline begin(s)
{
	join(s);
	position = settled[s];
	i = 0;
	do
	:: i < position -> before = before | BIT(QUEUE(s, i)); i++
	:: else -> break
	od;
	i = 1;
	do
	:: i <= used ->
		before = (s == A && run_of[i] != runs[s] -> before | BIT(i) : before);
		/* What the relay has passed over, and what it has put into the queue, counts as received. */
		received = (s == B && commit_of[i] <= (reached_place <= position -> reached_wal : relay_begin) &&
			WAL(B, commit_of[i]) == COMMIT(i) -> received | BIT(i) : received);
		i++
	:: else -> break
	od;
	i = 0;
	state = READS
}

#ifdef FROM_IS_NOT_AWAITED
#define REPLAYED		(!IS_RELAYED(B) || reached_wal >= t_furthest)
#elif defined(FURTHEST_IS_NOT_AWAITED)
#define REPLAYED		true
#else
#define REPLAYED		(!IS_RELAYED(B) || (reached_wal >= t_furthest && reached_wal >= t_from))
#endif

active proctype client()
{
	byte i, found, open, last, anchor_run, record, coming, in_wal;
	bit met, is_good, has_witness, has_conflict, has_left;

	atomic {
		runs[B] != 0;
#ifdef LATE
	};
	atomic {
#endif
		if
		:: begin(A)
		:: begin(B)
		fi
	};
end_client:
	do
	:: atomic { state == OFF && resumes < RESUMES -> resume(A) }
	:: atomic { state == OFF && resumes < RESUMES && REPLAYED -> resume(B) }
	/* the second half of the cut on a primary */
	:: atomic { state == CUT ->
#ifdef END_BEFORE_SETTLED
			position = settled[at];
#else
			cut_end = end[at];
#endif
			flush(at);
			/* Waits for the dispatcher, or the answer is false: what is left is below `from`. */
			if
			:: at == B && position < reached_place -> cut_off(); resumes--
			:: else -> read_history(); answer()
			fi
		}
	:: atomic { state == HISTORY && history != 0 ->
			found = 1;
			last = 0;
			do
			:: found <= LAST ->
				if
				:: (history & BIT(found)) && (last == 0 || commit_of[found] < commit_of[last]) -> last = found
				:: else
				fi;
				found++
			:: else -> break
			od;
			history = history & ~BIT(last);
			received = received | BIT(last);
			t_moved = 1;
#ifndef DONE_STAYS
			t_done = commit_of[last];
#endif
			if
			:: t_furthest < commit_of[last] -> t_furthest = commit_of[last]; t_witness = last
			:: else
			fi;
			anchor_below(at, commit_of[last]);
			t_from = (found > t_from -> found : t_from);
			found = 0; last = 0
		}
	:: atomic { state == HISTORY && history == 0 -> state = READS; cut_end = 0 }
	:: atomic { state == READS && position < settled[at] ->
			last = QUEUE(at, position);
			assert((received & BIT(last)) == 0);
			received = received | BIT(last);
			mark_witness(last);
			if
			:: run_of[last] != runs[at] && commit_of[last] > done -> done = commit_of[last]
			:: else
			fi;
			position++;
			last = 0
		}
	:: atomic { (state == READS || state == HISTORY || state == CUT) && resumes < RESUMES -> cut_off() }
	od
}
