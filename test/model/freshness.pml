/*
 * freshness.pml
 *	  Which values a session may keep: src/core/freshness.c with its users, which
 *	  are inval/invalidate.c (the writers) and inval/inval_reader.c.
 *
 * Processes: WRITERS, each with TRANSACTIONS, one after the other. A transaction
 * may change the key, and then sends MESSAGES about it; it may be rolled back or, with
 * PREPARES, be prepared, and finished later by another session. One session, which
 * holds up to HELD snapshots for any time, takes over another session's snapshot
 * (with FOREIGN), reads the queue at any time and up to any message, is reset
 * (with RESETS), computes the value as one of its snapshots sees it, keeps it
 * later, and uses it with any of its snapshots. It runs until the writers
 * end, and begins at any moment.
 *
 * A step is one access to shared memory, with what is local to the process
 * around it: sequential consistency. An action under a lock is one step:
 * inserting, joining, taking a snapshot, leaving the array of transactions in progress.
 *
 * The slot of a prepared transaction may still show it after it has ended, until
 * another transaction gets the slot. A restart needs no steps of its own: a session that
 * joins afterwards has missed all messages, and asks only the prepared transactions.
 *
 * Snapshots are those of the server: a snapshot lists the transactions that are
 * running below its xmax, and takes all from xmax on for running; xmax is one more
 * than the latest transaction that has ended.
 *
 * Simpler than in C: there is one key and one bucket, which has the lowest and
 * the highest id as in C. The queue is endless (invalidations.pml has the ring).
 * Transaction ids do not wrap around (test_freshness_world.c tests that).
 *
 * Checked: a value that is used under a snapshot contains every change that the
 * snapshot sees. At the end, when nothing runs any more, the value can be kept.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Size: 0.1 to 5 million states.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef WRITERS
#define WRITERS			2
#endif
#ifndef TRANSACTIONS
#define TRANSACTIONS	1
#endif
#ifndef MESSAGES
#define MESSAGES		1
#endif
#ifndef HELD
#define HELD			1
#endif

#define XIDS			(WRITERS * TRANSACTIONS)
#define FIRST_XID		1
#define END_XID			(FIRST_XID + XIDS)
#define BIT(x)			(1 << (x))
#define BITS(from, to)	((from) < (to) -> BIT(to) - BIT(from) : 0)

typedef Snapshot
{
	byte xmin, xmax;			/* xmax 0: there is none */
	byte running;				/* bits */
	byte contains				/* the changes that it sees: only for the checks */
}

byte next_xid = FIRST_XID;
byte latest_end = FIRST_XID;	/* one more than the latest transaction that has ended */
byte running;					/* bits: the array of transactions in progress */
byte visible;					/* bits: committed changes that snapshots see from now on */
byte committing[WRITERS];
byte prepared;					/* bits: what the slots of prepared transactions show */
byte to_finish;					/* bits: prepared, and not finished */
byte queue[XIDS * MESSAGES];	/* xids */
byte head;
byte done;						/* processes that have ended, besides the session */

#ifdef PREPARES
#define DONE			(WRITERS + 1)
#else
#define DONE			WRITERS
#endif

/* ---- invalidate.c ---- */

inline announce()
{
	committing[me] = xid			/* [I7] */
}

inline publish()
{
	do
	:: n < MESSAGES -> atomic { queue[head] = xid; head++; n++ }
	:: else -> n = 0; break
	od
}

/* Commits, seen by all new snapshots from now on; or rolls back. */
inline leave()
{
	atomic {
		if
		:: visible = visible | (changes -> BIT(xid) : 0)
		:: changes
		fi;
		running = running & ~BIT(xid);
		latest_end = (latest_end <= xid -> xid + 1 : latest_end)
	}
}

/* PREPARE TRANSACTION: it stays in progress. */
inline prepare()
{
#ifdef CLEAR_BEFORE_PREPARED
	committing[me] = 0;
	prepared = prepared | BIT(xid);
#else
	prepared = prepared | BIT(xid);
	committing[me] = 0;			/* [I7] */
#endif
	to_finish = to_finish | BIT(xid)
}

proctype writer(byte me)
{
	byte xid, n, transactions;
	bit changes;

	do
	:: transactions < TRANSACTIONS ->
		atomic {
			transactions++;
			xid = next_xid;
			next_xid++;
			running = running | BIT(xid);
			if :: changes = 1 :: changes = 0 fi
		};
		if
		:: !changes -> leave()
		:: else ->
#if defined(MESSAGE_AFTER_COMMIT)
			announce();
			leave();
			publish();
			committing[me] = 0
#elif defined(ANNOUNCE_AFTER_PUBLISHING)
			publish();
			announce();
			leave();
			committing[me] = 0
#elif defined(CLEAR_BEFORE_LEAVING)
			announce();
			publish();
			committing[me] = 0;
			leave()
#else
			announce();
			publish();
			if
#ifdef PREPARES
			:: prepare()
#endif
			:: leave();
				committing[me] = 0		/* [I7] */
			fi
#endif
		fi
	:: else -> break
	od;
	atomic { done++; xid = 0; changes = 0; transactions = 0 }
}

/* COMMIT PREPARED and ROLLBACK PREPARED, in any session. */
proctype finisher()
{
	byte xid;
	bit changes = 1;

	do
	:: atomic { to_finish > 0 ->
			xid = FIRST_XID;
			do
			:: to_finish & BIT(xid) -> break
			:: !(to_finish & BIT(xid)) -> xid++
			:: xid < END_XID - 1 && (to_finish >> (xid + 1)) > 0 -> xid++
			od
		};
		leave();
		atomic { to_finish = to_finish & ~BIT(xid); xid = 0 }
	/* The slots of transactions that have ended are used again. */
	:: atomic { (prepared & ~running) > 0 -> prepared = prepared & running }
	:: done == WRITERS && to_finish == 0 -> break
	od;
	atomic { done++; changes = 0 }
}

/* ---- the session ---- */

Snapshot held[HELD];
Snapshot foreign;				/* another session's */
Snapshot now;

bit has_joined;
byte position;

/* HeraldFreshness */
byte floor, floor_xmax, floor_count;
byte lowest, highest;			/* of the bucket */
byte missed_before;
byte not_missed, also_missed;	/* bits */

bit is_kept;
byte kept;						/* what the kept value contains */

bit is_computing, may;
byte with;						/* the snapshot to compute with */

inline take_snapshot(s)
{
	atomic {
		s.xmax = latest_end;
		s.running = running & BITS(0, latest_end);
		s.contains = visible;
		s.xmin = FIRST_XID;
		do
		:: s.xmin < s.xmax && !(s.running & BIT(s.xmin)) -> s.xmin++
		:: else -> break
		od
	}
}

inline drop_snapshot(s)
{
	s.xmin = 0; s.xmax = 0; s.running = 0; s.contains = 0
}

inline copy_snapshot(to, from)
{
	to.xmin = from.xmin; to.xmax = from.xmax; to.running = from.running; to.contains = from.contains
}

#define IN_PROGRESS(s)	(s.running | BITS(s.xmax, END_XID))
#define MISSED			(also_missed | (BITS(0, missed_before) & ~not_missed))
#define RANGE			(highest == 0 -> 0 : BITS(lowest, highest + 1))

#ifdef NO_FLOOR
#define IS_BEFORE_FLOOR(s)	false
#else
#define IS_BEFORE_FLOOR(s)	(s.xmin < floor || IS_OLDER(s))
#endif
#ifdef MISSED_UNCHECKED
#define SEES_MISSED(s)		true
#else
#define SEES_MISSED(s)		(missed_before == 0 || (IN_PROGRESS(s) & MISSED) == 0)
#endif
#ifdef UNCHECKED
#define SEES(s)				true
#else
#define SEES(s)				((IN_PROGRESS(s) & RANGE) == 0)
#endif
#define MAY_KEEP(s)			(!IS_BEFORE_FLOOR(s) && SEES_MISSED(s) && SEES(s))

inline ask_who_is_committing()
{
	i = 0;
	do
	:: i < WRITERS -> atomic { asked = asked | (committing[i] > 0 -> BIT(committing[i]) : 0); i++ }
	:: else -> i = 0; break
	od
}

inline ask_who_is_prepared()
{
#ifdef PREPARES
	asked = asked | prepared
#else
	skip
#endif
}

inline join()
{
#ifdef SNAPSHOT_BEFORE_JOINING
	take_snapshot(now);
#endif
#ifdef ASK_BEFORE_JOINING
	ask_who_is_committing();
#endif
	position = head;
#ifdef SNAPSHOT_BEFORE_ASKING
	take_snapshot(now);
#endif
#ifdef PREPARED_ARE_ASKED_FIRST
	ask_who_is_prepared();
#endif
#if !defined(ASK_BEFORE_JOINING) && !defined(NOBODY_IS_ASKED)
	ask_who_is_committing();
#endif
#if !defined(PREPARED_ARE_ASKED_FIRST) && !defined(PREPARED_ARE_NOT_ASKED)
	ask_who_is_prepared();
#endif
#if !defined(SNAPSHOT_BEFORE_JOINING) && !defined(SNAPSHOT_BEFORE_ASKING)
	take_snapshot(now);
#endif
	atomic {
		has_joined = 1;
		/* herald_freshness_join() */
		floor = 0;
		floor_xmax = 0;
		floor_count = 0;
		lowest = 0;
		highest = 0;
		missed_before = now.xmax;
		not_missed = now.running & ~asked;
#ifndef NOT_BEYOND
		also_missed = asked & BITS(now.xmax, END_XID);
#endif
		asked = 0;
		drop_snapshot(now);
#ifndef RESET_FORGETS_NOTHING
		is_kept = 0;
		kept = 0
#endif
	}
}

#define COUNT(bits)		(((bits) & 2) / 2 + ((bits) & 4) / 4 + ((bits) & 8) / 8 + ((bits) & 16) / 16)
#define IS_OLDER(s)		(s.xmax < floor_xmax || (s.xmax == floor_xmax && COUNT(s.running) > floor_count))

/* herald_freshness_note_seen() with snapshot `s`; forgets the value, too. */
inline note_seen(x, s)
{
	d_step {
		floor = (floor < s.xmin -> s.xmin : floor);
		if
		:: IS_OLDER(s)
		:: else -> floor_xmax = s.xmax; floor_count = COUNT(s.running)
		fi;
		highest = (SEES(s) -> 0 : highest);
		if
		:: !(IN_PROGRESS(s) & BIT(x))
		:: (IN_PROGRESS(s) & BIT(x)) && highest == 0 -> lowest = x; highest = x
		:: else ->
			lowest = (x < lowest -> x : lowest);
			highest = (x > highest -> x : highest)
		fi;
		lowest = (lowest < s.xmin -> s.xmin : lowest);
		is_kept = 0;
		kept = 0;
		drop_snapshot(now)
	}
}

/* herald_freshness_note(); forgets the value, too. */
inline note(x)
{
	d_step {
		xmin = (held[0].xmax > 0 -> held[0].xmin : END_XID);
#if HELD > 1
		xmin = (held[1].xmax > 0 && held[1].xmin < xmin -> held[1].xmin : xmin);
#endif
		xmin = (xmin == END_XID -> now.xmin : xmin);
		floor = (floor < xmin -> xmin : floor);
		highest = (highest < xmin -> 0 : highest);
		if
		:: x < xmin
		:: x >= xmin && highest == 0 -> lowest = x; highest = x
		:: else ->
			lowest = (x < lowest -> x : lowest);
			highest = (x > highest -> x : highest);
			lowest = (lowest < xmin -> xmin : lowest)
		fi;
		is_kept = 0;
		kept = 0;
		drop_snapshot(now);
		xmin = 0
	}
}

/*
 * Reading commutes with all steps of other processes, as the queue only grows; so it is one
 * step with what follows.
 */
inline read_message()
{
	message = queue[position];
	position++;
	/* An idle session takes a snapshot for its xmin. */
	take_snapshot(now);
#ifdef BY_XMIN
	note(message);
#else
	if
	:: held[s].xmax > 0 -> note_seen(message, held[s])
	:: else -> note_seen(message, now)
	fi;
#endif
	message = 0
}

/* Within one step, by a session that has joined. */
inline read_on()
{
	do
	:: position < head -> read_message()
	:: else -> break
	od
}

/* Gives up a value that is being computed with snapshot `s`. */
inline give_up_computing(s)
{
	is_computing = (with == s -> 0 : is_computing);
	may = (is_computing -> may : 0);
	with = (is_computing -> with : 0)
}

proctype session()
{
	byte i, asked, message, xmin, s;

	do
	:: has_joined == 0 -> join()
#ifdef RESETS
	:: has_joined && position < head -> join()
#endif
#if HELD > 1
	:: s = 1 - s
#endif
	/* A snapshot begins or ends. */
	:: held[s].xmax == 0 -> take_snapshot(held[s])
	:: atomic { held[s].xmax > 0 -> give_up_computing(s); drop_snapshot(held[s]) }
#ifdef FOREIGN
	:: foreign.xmax == 0 -> take_snapshot(foreign)
	/* A transaction begins with the foreign snapshot. */
	:: atomic { foreign.xmax > 0 && held[0].xmax == 0 && held[HELD - 1].xmax == 0 ->
			copy_snapshot(held[0], foreign); drop_snapshot(foreign) }
#endif
	/* The session reads a message, for any reason. */
	:: atomic { has_joined && position < head -> read_message() }
	/* The value is computed, and kept some time later. */
	:: atomic { held[s].xmax > 0 && !is_computing && has_joined ->
			is_computing = 1;
			with = s;
#ifdef CHECKED_EARLY
			may = MAY_KEEP(held[s])
#endif
		}
	:: atomic { is_computing && with == s ->
#ifndef CHECKED_EARLY
			may = MAY_KEEP(held[s]);
#endif
			if
			:: may -> is_kept = 1; kept = held[s].contains
			:: else
			fi;
			is_computing = 0;
			may = 0;
			with = 0
		}
	/* The value is used. */
#ifdef READ_BEFORE_SNAPSHOT
	:: atomic { held[s].xmax == 0 && is_kept -> read_on() };
		take_snapshot(held[s]);
		assert(!is_kept || (held[s].contains & ~kept) == 0)
#else
	:: atomic { held[s].xmax > 0 && is_kept ->
#ifndef USE_UNREAD
			read_on();
#endif
			assert(!is_kept || (held[s].contains & ~kept) == 0)
		}
#endif
	:: done == DONE -> break
	od;

	/* Nothing runs any more. */
	atomic {
		if
		:: has_joined -> read_on();
			take_snapshot(held[0]);
			assert(MAY_KEEP(held[0]))
		:: else
		fi
	}
}

init
{
	byte w;

	atomic {
		do
		:: w < WRITERS -> run writer(w); w++
		:: else -> break
		od;
		w = 0;
#ifdef PREPARES
		run finisher();
#endif
		run session()
	}
}
