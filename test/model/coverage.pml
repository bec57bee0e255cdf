/*
 * coverage.pml
 *	  Servers that run without pg_herald for a while: [X4] of src/core/wal_coverage.c, with
 *	  notify/cursor/ (cursor.c, cut.c, wal_source.c), notify/position/anchor.c,
 *	  notify/relay/relay.c, workers/relay_worker.c, core/receipt.c, core/wal_history.c.
 *
 * Processes: server A, a primary; server B, its standby, with a relay; and a client. A server commits COMMITS
 * transactions at any moment, with two sessions on A and one on B. A run without the module commits
 * silently: any such transaction may have notified a logged channel, and changed settings. A run with it
 * writes an anchor before its first commit, and ANCHORS more at any moment. A may restart
 * (RESTARTS_A), and B, as a standby or as a primary (RESTARTS_B), each time with the module or without it;
 * WITHOUT says which server may be without it. B may be promoted at any moment (PROMOTES); then A
 * commits no more. When B starts as a standby, its relay begins to read anywhere, and passes
 * over what has been replayed. The relay may end at any step, and is started again (ENDS); its WAL may
 * be removed (SKIPS). With BATCHES, a transaction of A may have logged notifications.
 *
 * The client begins on either server at any moment, by LISTEN or with a position only, is cut off at any
 * moment, and resumes on either server, RESUMES times.
 *
 * Simpler than in C: the message of a transaction and its commit record are one. No record is lost in a
 * restart, and the client has received everything on a primary (logged.pml has both). An anchor is published at
 * once. Dispatched and settled are one. All WAL is there for a history, which is delivered at once. A session may take
 * a position while coverage is UNCOVERED, which only a channel of positions does.
 *
 * Checked: when the server says that the client can resume, no silent commit of this server is missing: it was
 * before the client began, or the client was notified of a gap behind it, or the queue has that for it. While
 * the relay knows that the server runs with the module, and when it has ended, each listener on B was notified of a
 * gap behind each silent commit, or the queue has one for it. While it knows that the server runs without the module,
 * each listener was notified of that, or the queue has a gap for it. And no commit of a run with the module is
 * taken for a gap.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Size: up to 0.6 million states; with larger bounds 5 million.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef COMMITS
#define COMMITS			2
#endif
#ifndef ANCHORS
#define ANCHORS			1
#endif
#ifndef RESTARTS_A
#define RESTARTS_A		0
#endif
#ifndef RESTARTS_B
#define RESTARTS_B		0
#endif
#ifndef PROMOTES
#define PROMOTES		0
#endif
#ifndef ENDS
#define ENDS			0
#endif
#ifndef SKIPS
#define SKIPS			0
#endif
#ifndef RESUMES
#define RESUMES			1
#endif
#ifndef WITHOUT
#define WITHOUT			1		/* 1: A, 2: B, 3: both */
#endif

#define A				0
#define B				1
#define BIT(n)			(1 << (n))

/* A place in the WAL is the number of a record. 0: none. */
#define WAL_SIZE		(2 + 2 * COMMITS + ANCHORS + RESTARTS_A + RESTARTS_B + PROMOTES)
#define QUEUE_SIZE		(4 + COMMITS + 2 * ENDS + SKIPS)
#define WAL(s, at)		wal[(s) * WAL_SIZE + (at)]
#define BEGINNING		1
#define COMMIT			2		/* of a run with the module */
#define MESSAGE			3		/* only as a step */
#define ANCHOR(run)		(16 + (run))
#define BATCH(run)		(32 + (run))	/* a commit with its message */
#define SILENT(n)		(64 + (n))		/* a commit of a run without the module */
#define IS_ANCHOR(r)	((r) >= 16 && (r) < 32)
#define IS_BATCH(r)		((r) >= 32 && (r) < 64)
#define IS_SILENT(r)	((r) >= 64)

/* In B's queue: a batch, or a gap, with the place of its record; 0: the gap is not for the client's database. */
#define GAP				128
#define IS_GAP(entry)	((entry) >= GAP)

mtype = { IDLE, LOOKED, INSERTED, READY };				/* a session that commits */
mtype = { NEW, OFF, ASKED, ENTERED, READS, REFUSED };	/* the client */
mtype = { NOTHING, TO_TELL, TO_PUBLISH };				/* note_gap() */
mtype = { UNKNOWN, LOST, BEGUN, COVERED, UNCOVERED };	/* HeraldWalCoverage */

byte wal[2 * WAL_SIZE];
byte end[2];

byte runs[2];
bit has_module[2];
bit run_is_announced[2];
byte anchor[2];					/* the latest that is published; 0: none */
mtype session[3] = IDLE;		/* two of A, one of B */
byte used;						/* transactions */
byte anchors;					/* of housekeepers */
bit is_promoted;
byte restarts_a, restarts_b;

/* The relay of B. */
bit relay_is_active;
byte has_read;
mtype coverage = UNKNOWN;
byte from, from_run, last, last_run;	/* to be published */
bit is_gap;
mtype gap = NOTHING;			/* what is left to do about one */
bit passes;						/* it has not come to reached_wal */
byte relay_end;					/* of the recovery, or after it; 0: not known */
bit has_told_end;
byte ends, skips;
bit knows;						/* the client was notified since coverage is UNCOVERED, or the queue has that for it */

/* HeraldReached */
byte read_from, reached_wal, reached_place, complete_from;
byte reached_from, reached_from_run, reached_last, reached_last_run;
mtype reached_coverage = UNKNOWN;

byte queue[QUEUE_SIZE];
byte head;

/* The client, its session, and its token. */
mtype state = NEW;
bit at;							/* the server */
byte position;					/* in B's queue */
byte m_from, m_from_run, m_done, m_furthest, m_witness;	/* HeraldReceipt; a witness is a run */
byte t_run, t_place;
byte t_from, t_from_run, t_done, t_furthest, t_witness;
byte excused;					/* bits, only for the checks: silent commits that it needs no gap for */
byte resumes;

#define IS_RELAYED(s)	((s) == B && relay_is_active)
#define IS_PRIMARY(s)	((s) == A || is_promoted)
#define SERVES(s)		(has_module[s] && (IS_PRIMARY(s) || relay_is_active))
#define LACKS(c)		((c) == UNCOVERED || (c) == LOST)
#define HAS_JOINED		((state == ENTERED || state == READS) && at == B)

/* ---- wal_coverage.c ---- */

/* herald_wal_coverage_next(): of `known`; into is_gap. */
inline step(known, what)
{
	if
	:: what == BEGINNING ->
		is_gap = known == LOST;
#ifdef UNCOVERED_IS_FORGOTTEN
		known = BEGUN
#else
		known = (known == UNCOVERED -> UNCOVERED : BEGUN)
#endif
	:: what == COMMIT ->
		is_gap = known == BEGUN;
		known = (known == BEGUN -> UNCOVERED : known)
	:: what == MESSAGE ->
		is_gap = known == UNCOVERED || known == LOST;
		known = COVERED
	fi
}

inline take_record(known, record)
{
	if
	:: record == BEGINNING -> step(known, BEGINNING)
	:: record == COMMIT ->
		step(known, COMMIT);
		assert(!is_gap)			/* which would be a false alarm */
	:: IS_SILENT(record) -> step(known, COMMIT)
	:: else -> step(known, MESSAGE)
	fi
}

/* ---- only for the checks ---- */

/* Bits of the silent commits in the WAL of a server, up to a record. */
inline add_silent(bits, s, to)
{
	j = 1;
	do
	:: j <= to ->
		bits = (IS_SILENT(WAL(s, j)) -> bits | BIT(WAL(s, j) - 64) : bits);
		j++
	:: else -> break
	od;
	j = 0
}

/* Of a client on B: those up to a record for which it had no gap, and the queue has none for it. */
inline find_untold(to)
{
	untold = 0; told = excused;
	add_silent(untold, B, to);
	i = position;
	do
	:: i < head ->
		if
		:: IS_GAP(queue[i]) -> add_silent(told, B, queue[i] - GAP)
		:: else
		fi;
		i++
	:: else -> break
	od;
	untold = untold & ~told;
	told = 0; i = 0
}

inline check_listener()
{
	if
	:: state == READS && at == B && gap == NOTHING && !passes ->
		if
		:: coverage == UNKNOWN && relay_is_active
		:: LACKS(coverage) && relay_is_active -> assert(knows)
		:: else ->
			find_untold(has_read);
			assert(untold == 0)
		fi
	:: else
	fi
}

/* ---- the client's mark: core/receipt.c, cursor.c ---- */

inline clear_mark()
{
	m_from = 0; m_from_run = 0; m_done = 0; m_furthest = 0; m_witness = 0
}

inline join(o_from, o_from_run, o_done, o_furthest, o_witness)
{
	m_done = (o_done > m_done -> o_done : m_done);
	if
	:: o_from > m_from ->
		m_from = o_from; m_from_run = o_from_run;
		if
		:: m_furthest < m_from -> m_furthest = 0; m_witness = 0
		:: else
		fi
	:: else
	fi;
	if
	:: o_furthest > m_furthest && o_furthest > m_from -> m_furthest = o_furthest; m_witness = o_witness
	:: else
	fi
}

/* advance(). An anchor begins where the record before it ends. */
inline mark_advance(s)
{
	if
	:: anchor[s] != 0 && (s == A || position == head) ->
		join(anchor[s], runs[s], anchor[s] - 1, 0, 0)
	:: (anchor[s] == 0 || (s == B && position < head)) && s == B && reached_wal != 0 && reached_place <= position ->
		if
		:: reached_last >= reached_from -> join(reached_from, reached_from_run, reached_last, reached_last, reached_last_run)
		:: reached_last < reached_from -> join(reached_from, reached_from_run, reached_from - 1, 0, 0)
		fi
	:: else
	fi
}

inline cut_off()
{
	if
	:: state == READS ->
		mark_advance(at);
		t_run = runs[at]; t_place = position;
		t_from = m_from; t_from_run = m_from_run; t_done = m_done; t_furthest = m_furthest; t_witness = m_witness;
	:: else
	fi;
	clear_mark();
	state = (t_run == 0 -> REFUSED : OFF);
	position = 0; at = 0; knows = 0
}

/* ---- servers ---- */

inline insert(s, what)
{
	end[s]++;
	WAL(s, end[s]) = what
}

/* It starts, or starts again: all sessions end. */
inline start(s)
{
	if
	:: at == s && (state == READS || state == ENTERED || state == ASKED) -> cut_off()
	:: else
	fi;
	session[(s == A -> 0 : 2)] = IDLE;
	if
	:: s == A -> session[1] = IDLE
	:: else
	fi;
	run_is_announced[s] = 0;
	anchor[s] = 0;
	runs[s] = (runs[s] == 0 -> s + 1 : runs[s] + 2);
	if
	:: has_module[s] = 1
	:: (WITHOUT & BIT(s)) -> has_module[s] = 0
	fi;
	if
	:: IS_PRIMARY(s) -> insert(s, BEGINNING)
	:: else
	fi
}

/* Reading begins at this record or behind it, in a run or between two. */
inline choose_read_from(first)
{
	read_from = first;
	do
	:: read_from <= end[B] -> read_from++
	:: break
	od
}

inline publish_begin(known)
{
	reached_wal = end[B]; reached_place = head; complete_from = head;
	reached_last = 0; reached_last_run = 0; reached_coverage = known
}

inline forget_relay()
{
	has_read = 0; coverage = UNKNOWN; from = 0; from_run = 0; last = 0; last_run = 0; gap = NOTHING; passes = 0;
	relay_end = 0; has_told_end = 0
}

/* The process begins. */
inline start_relay()
{
	forget_relay();
	has_read = read_from - 1;
	coverage = reached_coverage;
	from = reached_from; from_run = reached_from_run; last = reached_last; last_run = reached_last_run;
	passes = 1
}

inline start_b()
{
	start(B);
	do
	:: head > 0 -> head--; queue[head] = 0
	:: else -> break
	od;
	forget_relay();
	relay_is_active = 0;
	read_from = 0; reached_wal = 0; reached_place = 0; complete_from = 0;
	reached_from = 0; reached_from_run = 0; reached_last = 0; reached_last_run = 0; reached_coverage = UNKNOWN;
	if
	:: has_module[B] && !is_promoted ->
		relay_is_active = 1;
		choose_read_from(1);
		publish_begin(UNKNOWN);
		reached_from = read_from; reached_from_run = 0;
		start_relay()
	:: else
	fi
}

#define RUNS(s)			((s) == A -> !is_promoted : is_promoted)

/* A session commits: herald_run_announce(), then the commit record. */
inline commit(s, i)
{
	if
	:: session[i] == IDLE ->
		used++;
		if
		:: !has_module[s] -> insert(s, SILENT(used))
		:: has_module[s] && !run_is_announced[s] -> session[i] = LOOKED
		:: has_module[s] && run_is_announced[s] -> session[i] = READY
		fi
#if defined(WORD_BEFORE_RECORD)
	:: session[i] == LOOKED -> run_is_announced[s] = 1; session[i] = INSERTED
	:: session[i] == INSERTED -> insert_anchor(s); session[i] = READY
	:: session[i] == READY -> insert_commit(s); session[i] = IDLE
#elif defined(COMMIT_BEFORE_RECORD)
	:: session[i] == LOOKED -> insert_commit(s); session[i] = INSERTED
	:: session[i] == INSERTED -> insert_anchor(s); run_is_announced[s] = 1; session[i] = IDLE
	:: session[i] == READY -> insert_commit(s); session[i] = IDLE
#else
	:: session[i] == LOOKED -> insert_anchor(s); session[i] = INSERTED
	:: session[i] == INSERTED -> run_is_announced[s] = 1; session[i] = READY	/* [X4] after the record */
	:: session[i] == READY -> insert_commit(s); session[i] = IDLE
#endif
	fi
}

inline insert_commit(s)
{
	if
	:: insert(s, COMMIT)
#ifdef BATCHES
	:: s == A -> insert(s, BATCH(runs[s]))
#endif
	fi
}

#define MAY_COMMIT(i)	(session[i] != IDLE || used < COMMITS)

/* While the relay is at work, it is not published. */
inline insert_anchor(s)
{
	insert(s, ANCHOR(runs[s]));
	anchor[s] = (IS_RELAYED(s) -> 0 : end[s])
}

/* At any time. */
inline keep_up(s)
{
	anchors++;
	insert_anchor(s);
	run_is_announced[s] = 1
}

active proctype server_a()
{
	byte i;

	atomic {
		start(A);
		start_b()
	};
end_a:
	do
	:: atomic { !is_promoted && MAY_COMMIT(0) -> commit(A, 0) }
	:: atomic { !is_promoted && MAY_COMMIT(1) -> commit(A, 1) }
	:: atomic { !is_promoted && has_module[A] && anchors < ANCHORS -> keep_up(A) }
	:: atomic { !is_promoted && restarts_a < RESTARTS_A -> restarts_a++; start(A) }
	od
}

active proctype server_b()
{
	runs[B] != 0;
end_b:
	do
	:: atomic { !is_promoted && end[B] < end[A] -> end[B]++; WAL(B, end[B]) = WAL(A, end[B]) }
	:: atomic { !is_promoted && PROMOTES -> is_promoted = 1; insert(B, BEGINNING) }
	:: atomic { is_promoted && MAY_COMMIT(2) -> commit(B, 2) }
	:: atomic { is_promoted && has_module[B] && !relay_is_active && anchors < ANCHORS -> keep_up(B) }
	:: atomic { restarts_b < RESTARTS_B -> restarts_b++; start_b() }
	od
}

/* ---- relay.c ---- */

inline note_progress()
{
	reached_wal = has_read;
	reached_place = head;
	reached_coverage = coverage;
	read_from = has_read + 1;
	publish_from()
}

inline publish_from()
{
	reached_from = from; reached_from_run = from_run; reached_last = last; reached_last_run = last_run
}

/*
 * [X4] A session enters the channel map, and then looks whether the server runs without the module: so that is
 * published before the gap. The end of it is published behind the gap: if the process ends between the two, the
 * next one meets it again.
 */
inline begin_gap()
{
	gap = TO_TELL;
#ifdef COVERED_BEFORE_GAP
	reached_coverage = coverage;
#elif !defined(GAP_BEFORE_COVERAGE)
	reached_coverage = (coverage == UNCOVERED -> UNCOVERED : reached_coverage);
#endif
}

/* publish_gaps(): for the databases of the sessions that have joined */
inline tell()
{
	queue[head] = (HAS_JOINED -> GAP + (has_read > reached_wal -> has_read : reached_wal) : GAP);
	head++;
	knows = knows || HAS_JOINED
}

/* What it has read is an anchor, or a batch. */
inline take_message(record)
{
	if
	:: IS_ANCHOR(record) && has_read > from -> from = has_read; from_run = record - 16
	:: IS_BATCH(record) && record != BATCH(runs[B]) ->
		last = has_read; last_run = record - 32;
		if
		:: has_read > reached_wal ->
			queue[head] = has_read;
			head++;
			note_progress()
		:: else
		fi
	:: else
	fi;
	check_listener()
}

inline relay_record()
{
	has_read++;
#ifdef RELAY_IGNORES_BEGINNINGS
	if
	:: WAL(B, has_read) == BEGINNING
	:: else -> take_record(coverage, WAL(B, has_read))
	fi;
#else
	take_record(coverage, WAL(B, has_read));
#endif
	knows = knows && (LACKS(coverage) || passes);
	if
	:: is_gap && has_read > reached_wal -> begin_gap()
	:: else -> take_message(WAL(B, has_read))
	fi;
	is_gap = 0
}

#define IS_AT_END		(relay_end != 0 && has_read >= relay_end)

active proctype relay()
{
	byte i, j, untold, told;

	runs[B] != 0;
end_relay:
	do
	:: atomic { relay_is_active && gap == NOTHING && !(passes && has_read >= reached_wal) && has_read < end[B] &&
			!IS_AT_END -> relay_record() }
	:: atomic { relay_is_active && gap == TO_TELL ->
			tell();
			gap = TO_PUBLISH
		}
	:: atomic { relay_is_active && gap == TO_PUBLISH ->
			gap = NOTHING;
			complete_from = head;
			reached_coverage = coverage;
			if
			:: !passes && !has_told_end -> take_message(WAL(B, has_read))
			:: else
			fi
		}
	:: atomic { relay_is_active && passes && has_read >= reached_wal ->
			passes = 0;
			knows = knows && LACKS(coverage);
			check_listener()
		}
	:: atomic { relay_is_active && gap == NOTHING && !passes &&
			(has_read != reached_wal || coverage != reached_coverage || from != reached_from) -> note_progress() }
#ifdef FROM_BEFORE_PLACE
	/* Without progress. */
	:: atomic { relay_is_active && from != reached_from -> publish_from() }
#endif
	:: atomic { relay_is_active && is_promoted && relay_end == 0 -> relay_end = end[B] }
	:: atomic { relay_is_active && gap == NOTHING && !passes && IS_AT_END ->
#ifndef ENDS_SILENTLY
			if
			:: LACKS(coverage) && !has_told_end -> has_told_end = 1; begin_gap()
			:: else ->
#endif
				note_progress();
				relay_is_active = 0;
				check_listener();
				has_told_end = 0; knows = 0
#ifndef ENDS_SILENTLY
			fi
#endif
		}
	/* Perhaps the process has ended between the two steps of a gap. */
	:: atomic { relay_is_active && ends < ENDS ->
			ends++;
			start_relay();
#ifndef BEGINS_SILENTLY
			if
			:: LACKS(coverage) -> gap = TO_TELL
			:: else
			fi
#endif
		}
	:: atomic { relay_is_active && gap == NOTHING && !is_promoted && skips < SKIPS && has_read < end[B] ->
			skips++;
			choose_read_from(has_read + 1);
#ifdef SKIP_BEGINS_UNKNOWN
			publish_begin(UNKNOWN);
#else
			publish_begin(LOST);
#endif
			reached_from = 0; reached_from_run = 0;
			start_relay();
			gap = TO_TELL
		}
	od
}

/* ---- cursor.c, wal_source.c ---- */

/* herald_cursor_begin() */
inline enter(s)
{
	at = s;
	position = (s == B -> head : 0);
	clear_mark();
	mark_advance(s)
}

inline begin(s)
{
	enter(s);
	add_silent(excused, s, end[s])
}

/* herald_wal_source_read(): from the token to the cut. Into is_good. */
inline read_history(s, to)
{
	known = UNKNOWN;
	is_good = t_from != 0 && t_from <= to &&
		(t_furthest == 0 -> WAL(s, t_from) == ANCHOR(t_from_run) :
		 t_furthest <= to && WAL(s, t_furthest) == BATCH(t_witness));
	i = t_from;
	do
	:: is_good && i <= to ->
#ifdef HISTORY_IGNORES_BEGINNINGS
		if
		:: WAL(s, i) == BEGINNING -> is_gap = 0
		:: else -> take_record(known, WAL(s, i))
		fi;
#else
		take_record(known, WAL(s, i));
#endif
		is_good = !(is_gap && i > t_done);
		i++
	:: else -> break
	od;
	is_gap = 0; known = UNKNOWN; i = 0
}

inline refuse()
{
	state = REFUSED;
	position = 0; at = 0; knows = 0;
	clear_mark();
	t_run = 0; t_place = 0; t_from = 0; t_from_run = 0; t_done = 0; t_furthest = 0; t_witness = 0; excused = 0
}

inline resume(s)
{
	enter(s);
	if
	:: t_run == runs[s] && (s == A || t_place >= complete_from) ->
		position = t_place;
		m_from = t_from; m_from_run = t_from_run; m_done = t_done; m_furthest = t_furthest; m_witness = t_witness;
		is_good = 1
	:: else ->
		if
		:: IS_RELAYED(s) -> position = reached_place
		:: else
		fi;
		cut = (IS_RELAYED(s) -> reached_wal : end[s]);
		read_history(s, cut);
		if
		:: is_good ->
			add_silent(untold, s, cut);
			assert((untold & ~excused) == 0);
			untold = 0;
			join(t_from, t_from_run, t_done, t_furthest, t_witness)
		:: else
		fi
	fi;
	if
	:: is_good -> state = ENTERED
	:: else -> refuse()
	fi;
	is_good = 0; cut = 0
}

/*
 * [X4] It waits while coverage is UNKNOWN, which never comes back, before it enters its channels in the map:
 * what was committed between the two is covered. Then it looks whether that is UNCOVERED or LOST.
 */
#if defined(WAITS_AFTER_ENTERING) || defined(UNKNOWN_IS_ENOUGH)
#define HAS_EVIDENCE	true
#else
#define HAS_EVIDENCE	(!relay_is_active || (reached_coverage != UNKNOWN && reached_coverage != LOST))
#endif
#ifdef UNKNOWN_IS_ENOUGH
#define IS_COVERED		(!relay_is_active || !LACKS(reached_coverage))
#else
#define IS_COVERED		(!relay_is_active || reached_coverage == BEGUN || reached_coverage == COVERED)
#endif

#define IS_COMPLETE		(!relay_is_active || (reached_wal >= t_from && reached_wal >= t_furthest))

active proctype client()
{
	byte i, j, untold, told, cut;
	mtype known = UNKNOWN;
	bit is_good;

	runs[B] != 0;
end_client:
	do
	:: atomic { state == NEW && SERVES(A) && !is_promoted -> begin(A); state = READS }
	:: atomic { state == OFF && resumes < RESUMES && SERVES(A) ->
			resumes++;
			resume(A);
			state = (state == ENTERED -> READS : state)
		}
#ifdef LOOKS_BEFORE_ENTERING
	:: atomic { (state == NEW || (state == OFF && resumes < RESUMES)) && SERVES(B) && IS_COVERED -> state = ASKED; at = B }
	:: atomic { state == ASKED && t_run == 0 -> begin(B); state = READS }
	:: atomic { state == ASKED && t_run != 0 && IS_COMPLETE ->
			resumes++;
			resume(B);
			state = (state == ENTERED -> READS : state)
		}
#else
	:: atomic { state == NEW && SERVES(B) && HAS_EVIDENCE -> begin(B); state = ENTERED }
	:: atomic { state == OFF && resumes < RESUMES && SERVES(B) && HAS_EVIDENCE && IS_COMPLETE ->
			resumes++;
			resume(B)
		}
#endif
	/* It looks when it has entered its channels in the map. */
	:: atomic { state == ENTERED ->
			if
			:: IS_COVERED && (t_run == 0 || position >= complete_from) -> state = READS; check_listener()
			:: else -> refuse()
			fi
		}
	/* herald.position(): it looks, and then takes the position */
	:: atomic { state == NEW && SERVES(B) && HAS_EVIDENCE ->
			begin(B);
			state = READS;
			cut_off()
		}
	:: atomic { state == READS && at == B && position < head ->
			if
			:: IS_GAP(queue[position]) -> add_silent(excused, B, queue[position] - GAP)
			:: else ->
				i = queue[position];
				if
				:: i > m_furthest && i > m_from -> m_furthest = i; m_witness = WAL(B, i) - 32
				:: else
				fi;
				m_done = (i > m_done -> i : m_done);
				i = 0
			fi;
			position++
		}
	:: atomic { state == READS && resumes < RESUMES -> cut_off() }
	od
}
