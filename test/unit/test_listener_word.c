/*-------------------------------------------------------------------------
 *
 * test_listener_word.c
 *	  Unit tests of listener_word.c: every state with every event.
 *
 * Guards: the table in src/core/README.md, row by row: the state and
 * the position afterwards, and the result for the caller.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "listener_word.h"

/* The position in the word, one before it, and one after it. */
#define BEFORE	((HeraldPosition) 4088)
#define HERE	((HeraldPosition) 4096)
#define BEHIND	((HeraldPosition) 8192)

/* Short names, to keep the table readable. */
enum
{
	FREE = HERALD_LISTENER_FREE,
	IDLE = HERALD_LISTENER_IDLE,
	PENDING = HERALD_LISTENER_PENDING,
	SIGNALLED = HERALD_LISTENER_SIGNALLED,
	PROCESSING = HERALD_LISTENER_PROCESSING,
	AGAIN = HERALD_LISTENER_AGAIN,
	BUSY = HERALD_LISTENER_BUSY,
	BUSY_PENDING = HERALD_LISTENER_BUSY_PENDING,
	STATES,
	FORBIDDEN					/* the core stops at an assertion */
};

typedef enum Event
{
	JOIN, LEAVE, MARK, MARK_SEEN, MARK_NEXT, SIGNAL, TO_BUSY, REST, BEGIN, ADVANCE, FINISH,
	REQUEUE, EVENTS
} Event;

static const char *const event_names[EVENTS] = {
	"join", "leave", "mark", "mark what was read", "mark the next one", "signal", "busy",
	"rest", "begin", "advance", "finish", "requeue"
};

typedef struct Row
{
	unsigned	before;
	unsigned	after;
	HeraldPosition position;	/* afterwards */
	unsigned	result;			/* 0 for events without one */
} Row;

static const Row table[EVENTS][STATES] = {
	[JOIN] = {
		{FREE, BUSY, BEHIND, 0}, {IDLE, FORBIDDEN, 0, 0}, {PENDING, FORBIDDEN, 0, 0},
		{SIGNALLED, FORBIDDEN, 0, 0}, {PROCESSING, FORBIDDEN, 0, 0}, {AGAIN, FORBIDDEN, 0, 0},
		{BUSY, FORBIDDEN, 0, 0}, {BUSY_PENDING, FORBIDDEN, 0, 0},
	},
	[LEAVE] = {
		{FREE, FREE, 0, 0}, {IDLE, FREE, 0, 0}, {PENDING, FREE, 0, 0}, {SIGNALLED, FREE, 0, 0},
		{PROCESSING, FREE, 0, 0}, {AGAIN, FREE, 0, 0}, {BUSY, FREE, 0, 0},
		{BUSY_PENDING, FREE, 0, 0},
	},
	[MARK] = {
		{FREE, FREE, HERE, false}, {IDLE, PENDING, BEHIND, true}, {PENDING, PENDING, HERE, false},
		{SIGNALLED, SIGNALLED, HERE, false}, {PROCESSING, AGAIN, HERE, false},
		{AGAIN, AGAIN, HERE, false}, {BUSY, BUSY_PENDING, BEHIND, false},
		{BUSY_PENDING, BUSY_PENDING, HERE, false},
	},
	/* A message that the listener has read by itself before it is marked. */
	[MARK_SEEN] = {
		{FREE, FREE, HERE, false}, {IDLE, IDLE, HERE, false}, {PENDING, PENDING, HERE, false},
		{SIGNALLED, SIGNALLED, HERE, false}, {PROCESSING, AGAIN, HERE, false},
		{AGAIN, AGAIN, HERE, false}, {BUSY, BUSY, HERE, false},
		{BUSY_PENDING, BUSY_PENDING, HERE, false},
	},
	/* The next message after those that the listener has read. */
	[MARK_NEXT] = {
		{FREE, FREE, HERE, false}, {IDLE, PENDING, HERE, true}, {PENDING, PENDING, HERE, false},
		{SIGNALLED, SIGNALLED, HERE, false}, {PROCESSING, AGAIN, HERE, false},
		{AGAIN, AGAIN, HERE, false}, {BUSY, BUSY_PENDING, HERE, false},
		{BUSY_PENDING, BUSY_PENDING, HERE, false},
	},
	[SIGNAL] = {
		{FREE, FREE, HERE, false}, {IDLE, IDLE, HERE, false}, {PENDING, SIGNALLED, HERE, true},
		{SIGNALLED, SIGNALLED, HERE, false}, {PROCESSING, PROCESSING, HERE, false},
		{AGAIN, AGAIN, HERE, false}, {BUSY, BUSY, HERE, false},
		{BUSY_PENDING, BUSY_PENDING, HERE, false},
	},
	[TO_BUSY] = {
		{FREE, FREE, HERE, FREE}, {IDLE, BUSY, HERE, IDLE},
		{PENDING, BUSY_PENDING, HERE, PENDING}, {SIGNALLED, BUSY_PENDING, HERE, SIGNALLED},
		{PROCESSING, PROCESSING, HERE, PROCESSING}, {AGAIN, AGAIN, HERE, AGAIN},
		{BUSY, BUSY, HERE, BUSY}, {BUSY_PENDING, BUSY_PENDING, HERE, BUSY_PENDING},
	},
	[REST] = {
		{FREE, FREE, HERE, false}, {IDLE, IDLE, HERE, false}, {PENDING, PENDING, HERE, false},
		{SIGNALLED, SIGNALLED, HERE, false}, {PROCESSING, PROCESSING, HERE, false},
		{AGAIN, AGAIN, HERE, false}, {BUSY, IDLE, HERE, false},
		{BUSY_PENDING, SIGNALLED, HERE, true},
	},
	[BEGIN] = {
		{FREE, FREE, HERE, false}, {IDLE, IDLE, HERE, false}, {PENDING, PROCESSING, HERE, true},
		{SIGNALLED, PROCESSING, HERE, true}, {PROCESSING, PROCESSING, HERE, false},
		{AGAIN, AGAIN, HERE, false}, {BUSY, BUSY, HERE, false},
		{BUSY_PENDING, BUSY_PENDING, HERE, false},
	},
	[ADVANCE] = {
		{FREE, FREE, BEHIND, 0}, {IDLE, IDLE, BEHIND, 0}, {PENDING, PENDING, BEHIND, 0},
		{SIGNALLED, SIGNALLED, BEHIND, 0}, {PROCESSING, PROCESSING, BEHIND, 0},
		{AGAIN, AGAIN, BEHIND, 0}, {BUSY, BUSY, BEHIND, 0},
		{BUSY_PENDING, BUSY_PENDING, BEHIND, 0},
	},
	[FINISH] = {
		{FREE, FORBIDDEN, 0, 0}, {IDLE, FORBIDDEN, 0, 0}, {PENDING, FORBIDDEN, 0, 0},
		{SIGNALLED, FORBIDDEN, 0, 0}, {PROCESSING, IDLE, BEHIND, true},
		{AGAIN, PROCESSING, BEHIND, false}, {BUSY, FORBIDDEN, 0, 0},
		{BUSY_PENDING, FORBIDDEN, 0, 0},
	},
	/* Called only in PROCESSING and AGAIN. */
	[REQUEUE] = {
		{FREE, PENDING, BEHIND, 0}, {IDLE, PENDING, BEHIND, 0}, {PENDING, PENDING, BEHIND, 0},
		{SIGNALLED, PENDING, BEHIND, 0}, {PROCESSING, PENDING, BEHIND, 0},
		{AGAIN, PENDING, BEHIND, 0}, {BUSY, PENDING, BEHIND, 0},
		{BUSY_PENDING, PENDING, BEHIND, 0},
	},
};

/* Let the event happen; returns the result for the caller. */
static unsigned
happen(HeraldListenerWord *word, Event event)
{
	HeraldPosition from = 0;
	unsigned	result = 0;

	switch (event)
	{
		case JOIN:
			herald_listener_join(word, BEHIND);
			break;
		case LEAVE:
			herald_listener_leave(word);
			break;
		case MARK:
			return herald_listener_mark(word, BEHIND);
		case MARK_SEEN:
			return herald_listener_mark(word, BEFORE);
		case MARK_NEXT:
			return herald_listener_mark(word, HERE);
		case SIGNAL:
			return herald_listener_signal(word);
		case TO_BUSY:
			return herald_listener_busy(word);
		case REST:
			return herald_listener_rest(word);
		case BEGIN:
			result = herald_listener_begin(word, &from);
			if (result)
				assert_int_equal(from, HERE);
			break;
		case ADVANCE:
			herald_listener_advance(word, BEHIND);
			break;
		case FINISH:
			return herald_listener_finish(word, BEHIND);
		case REQUEUE:
			herald_listener_requeue(word, BEHIND);
			break;
		case EVENTS:
			break;
	}
	return result;
}

/* Does the core stop at an assertion?  Tried in a child process. */
static bool
is_forbidden(HeraldListenerWord *word, Event event)
{
	pid_t		child = fork();
	int			status;

	assert_true(child >= 0);
	if (child == 0)
	{
		signal(SIGABRT, SIG_DFL);
		if (freopen("/dev/null", "w", stderr) == NULL)
			_exit(1);
		(void) happen(word, event);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void
test_table(void **state UNUSED)
{
	for (unsigned event = 0; event < EVENTS; event++)
		for (unsigned s = 0; s < STATES; s++)
		{
			const Row  *row = &table[event][s];
			HeraldListenerWord word;
			unsigned	result;

			assert_int_equal(row->before, s);
			atomic_init(&word, herald_word_make(HERE, s));
			if (row->after == FORBIDDEN)
			{
				if (!is_forbidden(&word, (Event) event))
					fail_msg("%s in state %u is let through", event_names[event], s);
				continue;
			}
			result = happen(&word, (Event) event);
			if (result != row->result ||
				atomic_load(&word) != herald_word_make(row->position, row->after))
				fail_msg("%s in state %u: told %u, state %u at %llu", event_names[event], s,
						 result, herald_word_state(atomic_load(&word)),
						 (unsigned long long) herald_word_position(atomic_load(&word)));
		}
}

/* Guards: which states hold the queue back. */
static void
test_is_pending(void **state UNUSED)
{
	static const bool pending[STATES] = {
		[PENDING] = true,[SIGNALLED] = true,[PROCESSING] = true,[AGAIN] = true,
		[BUSY_PENDING] = true
	};

	for (unsigned s = 0; s < STATES; s++)
		assert_int_equal(herald_listener_is_pending(herald_word_make(HERE, s)), pending[s]);
}

/* Guards: the first pending position is kept while later ones are coalesced. */
static void
test_first_position_is_kept(void **state UNUSED)
{
	HeraldListenerWord word;
	HeraldPosition from;

	atomic_init(&word, 0);
	herald_listener_join(&word, HERE);
	assert_false(herald_listener_rest(&word));
	assert_true(herald_listener_mark(&word, HERE + 80));
	assert_false(herald_listener_mark(&word, HERE + 160));
	assert_true(herald_listener_signal(&word));
	assert_false(herald_listener_mark(&word, HERE + 240));
	assert_int_equal(herald_listener_busy(&word), SIGNALLED);
	assert_false(herald_listener_mark(&word, HERE + 320));
	assert_true(herald_listener_rest(&word));
	assert_true(herald_listener_begin(&word, &from));
	assert_int_equal(from, HERE + 80);
}

/* Guards: "again" costs one more look, not an endless one. */
static void
test_again(void **state UNUSED)
{
	HeraldListenerWord word;
	HeraldPosition from;

	atomic_init(&word, herald_word_make(HERE, SIGNALLED));
	assert_true(herald_listener_begin(&word, &from));
	assert_false(herald_listener_mark(&word, HERE + 80));
	assert_false(herald_listener_mark(&word, HERE + 160));
	assert_false(herald_listener_finish(&word, HERE + 80));
	assert_true(herald_listener_finish(&word, HERE + 240));
	assert_false(herald_listener_mark(&word, HERE + 160));
	assert_true(herald_listener_mark(&word, HERE + 240));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_is_pending),
		cmocka_unit_test(test_first_position_is_kept),
		cmocka_unit_test(test_again),
	};

	return cmocka_run_group_tests_name("listener_word", tests, NULL, NULL);
}
