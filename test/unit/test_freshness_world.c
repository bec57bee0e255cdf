/*-------------------------------------------------------------------------
 *
 * test_freshness_world.c
 *	  A small random world around freshness.c: is a kept value ever stale?
 *
 * Writers begin transactions, some of which have invalidations, which they put
 * in the queue before they commit; some take long, some are prepared before,
 * some are rolled back.
 * Sessions take snapshots, hold some of them for long, and take over each
 * other's; they read the queue at any time, join it late, are reset; they compute
 * values as one of their snapshots sees them, and keep them later if the rule
 * allows it.  A few keys share fewer buckets, and ids wrap around often, at times
 * by a thousand million in one step.
 *
 * The oracle knows the time of each change and of each snapshot.  Guards:
 *
 *	 a value that is returned under a snapshot, after reading the queue to its
 *	 end, contains every change that the snapshot sees;
 *
 *	 when no transaction runs any more, every value can be kept.
 *
 * HERALD_TEST_SEED runs one seed only.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "freshness.h"

#define SEEDS			200
#define STEPS			50000
#define WRITERS			6
#define SESSIONS		3
#define KEYS			6			/* half of them in each of two caches */
#define CHANGES_MAX		2
#define SNAPSHOTS		3			/* held by a session */
#define HISTORY			64			/* changes of a key that are remembered */
#define MESSAGES		4096		/* a ring; sessions are reset long before it is full */
#define FIRST_XID		3
#define REACH			(UINT64_C(1) << 31)

typedef struct Message
{
	uint32_t	cache;
	int			key;			/* -1: all of that cache */
	uint32_t	xid;
} Message;

typedef enum Phase
{
	IDLE, RUNNING, PUBLISHING, PREPARED, OVER
} Phase;

typedef struct Writer
{
	Phase		phase;
	uint64_t	xid;			/* never wraps */
	uint64_t	last_xid;		/* of its subtransactions */
	Message		changes[CHANGES_MAX];
	int			count;
	int			published;
	bool		is_slow;
	uint32_t	committing;		/* as in the queue's slot */
	uint32_t	prepared;		/* as in the server's slot for one; also after its end */
} Writer;

typedef struct Snap
{
	bool		is_held;
	uint64_t	time;			/* sees all changes up to here */
	uint64_t	horizon;		/* xmin, never wraps */
	uint32_t	running[2 * WRITERS];
	HeraldVisibility visibility;	/* except for its pointer to `running` */
} Snap;

typedef struct Session
{
	HeraldFreshness *freshness;
	bool		has_joined;
	uint64_t	position;
	uint32_t	room[4 * WRITERS];
	Snap		snaps[SNAPSHOTS];

	/* Kept values, and the time up to which they contain all changes. */
	bool		is_kept[KEYS];
	uint64_t	kept_time[KEYS];

	/* The value that is being computed. */
	bool		is_computing;
	int			key;
	int			snap;
} Session;

typedef struct World
{
	uint64_t	seed;
	uint64_t	random;
	uint64_t	step;

	/* Settings of this world. */
	unsigned	jump_one_in;	/* 0: never */
	unsigned	reset_one_in;
	unsigned	slow_percent;
	unsigned	busy_percent;	/* steps that are writers' */
	unsigned	quiet_percent;	/* transactions that change nothing */
	unsigned	prepared_percent;	/* of those that change something */
	bool		is_xmin_known;
	bool		is_by_snapshot; /* herald_freshness_note_seen() */

	bool		is_quiet;		/* no transaction begins */
	uint64_t	next_xid;
	uint64_t	completed_xid;	/* the latest */
	uint64_t	time;
	Writer		writers[WRITERS];
	Session		sessions[SESSIONS];
	Message		messages[MESSAGES];
	uint64_t	head;

	uint64_t	changed[KEYS][HISTORY];
	uint64_t	changes[KEYS];
} World;

/* Counts of all worlds together. */
static struct
{
	uint64_t	hits;
	uint64_t	kept;
	uint64_t	could_be_kept;
	uint64_t	resets;
	uint64_t	worn_out;
	uint64_t	jumps;
}			totals;


/* splitmix64 */
static uint64_t
next_random(World *world)
{
	uint64_t	z = (world->random += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static unsigned
below(World *world, unsigned limit)
{
	return (unsigned) (next_random(world) % limit);
}

static bool
one_in(World *world, unsigned n)
{
	return n > 0 && below(world, n) == 0;
}

static uint32_t
cache_of(int key)
{
	return key < KEYS / 2 ? 1 : 2;
}

/* Two keys each share a bucket, one of them with the hash that stands for a whole cache. */
static uint32_t
hash_of(uint32_t cache, int key)
{
	if (key < 0)
		return 4 + cache;
	return (uint32_t) (key % 3) * 2 + 1 + (uint32_t) key * HERALD_FRESHNESS_BUCKETS;
}

/* ---- writers ---- */

static uint64_t
take_xid(World *world)
{
	while ((uint32_t) world->next_xid < FIRST_XID)
		world->next_xid++;
	return world->next_xid++;
}

/* The oldest id that a snapshot may see in progress, or that `committing` still has. */
static uint64_t
oldest_xid(const World *world)
{
	uint64_t	oldest = world->next_xid;

	for (int w = 0; w < WRITERS; w++)
		if (world->writers[w].phase != IDLE)
			oldest = world->writers[w].xid < oldest ? world->writers[w].xid : oldest;
	for (int s = 0; s < SESSIONS; s++)
		for (int i = 0; i < SNAPSHOTS; i++)
		{
			const Snap *snap = &world->sessions[s].snaps[i];

			if (snap->is_held && snap->horizon < oldest)
				oldest = snap->horizon;
		}
	return oldest;
}

static void
complete(World *world, uint64_t xid)
{
	if (xid > world->completed_xid)
		world->completed_xid = xid;
}

/* Many transactions begin and end at once, as far as the server allows. */
static void
jump(World *world)
{
	uint64_t	room = oldest_xid(world) + REACH - 1000;
	uint64_t	distance = next_random(world) % REACH >> below(world, 8);

	if (world->next_xid + distance > room)
		return;
	world->next_xid += distance;
	complete(world, take_xid(world));
	totals.jumps++;
}

static void
begin(World *world, Writer *writer)
{
	if (world->is_quiet || world->next_xid + 10 > oldest_xid(world) + REACH)
		return;
	writer->phase = RUNNING;
	writer->xid = writer->last_xid = take_xid(world);
	writer->is_slow = below(world, 100) < world->slow_percent;
	writer->published = 0;
	writer->count = below(world, 100) < world->quiet_percent ? 0 : 1 + (int) below(world, CHANGES_MAX);
	for (int i = 0; i < writer->count; i++)
	{
		int			key = (int) below(world, KEYS);

		writer->changes[i].cache = cache_of(key);
		writer->changes[i].key = one_in(world, 20) ? -1 : key;
		writer->changes[i].xid = (uint32_t) writer->xid;
	}
}

static void
record_change(World *world, int key)
{
	world->changed[key][world->changes[key]++ % HISTORY] = world->time;
}

static void
finish(World *world, Writer *writer)
{
	complete(world, writer->last_xid);
	writer->phase = OVER;
	if (one_in(world, 8))
		return;
	world->time++;
	for (int i = 0; i < writer->count; i++)
		for (int key = 0; key < KEYS; key++)
			if (writer->changes[i].key == key ||
				(writer->changes[i].key < 0 && writer->changes[i].cache == cache_of(key)))
				record_change(world, key);
}

static void
writer_step(World *world)
{
	Writer	   *writer = &world->writers[below(world, WRITERS)];

	if (!world->is_quiet && one_in(world, world->jump_one_in))
		jump(world);
	if (writer->is_slow && !one_in(world, 100))
		return;
	switch (writer->phase)
	{
		case IDLE:
			begin(world, writer);
			break;
		case RUNNING:
			if (one_in(world, 4))
				writer->last_xid = take_xid(world);
			else if (writer->count == 0)
				finish(world, writer);
			else
			{
				writer->committing = (uint32_t) writer->xid;
				writer->phase = PUBLISHING;
			}
			break;
		case PUBLISHING:
			if (writer->published < writer->count)
				world->messages[world->head++ % MESSAGES] = writer->changes[writer->published++];
			else if (below(world, 100) < world->prepared_percent)
			{
				writer->prepared = (uint32_t) writer->xid;
				writer->phase = PREPARED;
			}
			else
				finish(world, writer);
			break;
		case PREPARED:
			if (writer->committing != 0)
				writer->committing = 0;
			else if (world->is_quiet || one_in(world, 10))
				finish(world, writer);
			break;
		case OVER:
			writer->committing = 0;
			writer->phase = IDLE;
			writer->is_slow = false;
			break;
	}
}

static void
let_writers_run(World *world)
{
	for (unsigned n = below(world, 8); n > 0; n--)
		writer_step(world);
}

/* ---- sessions ---- */

static void
take_snapshot(World *world, Snap *snap)
{
	uint64_t	after = world->completed_xid + 1;

	while ((uint32_t) after < FIRST_XID)
		after++;
	snap->is_held = true;
	snap->time = world->time;
	snap->horizon = after;
	snap->visibility.xmax = (uint32_t) after;
	snap->visibility.count = 0;
	for (int w = 0; w < WRITERS; w++)
	{
		const Writer *writer = &world->writers[w];

		if (writer->phase != IDLE && writer->phase != OVER && writer->xid < after)
		{
			snap->running[snap->visibility.count++] = (uint32_t) writer->xid;
			if (writer->phase == PREPARED && writer->committing != 0)
				snap->running[snap->visibility.count++] = (uint32_t) writer->xid;
			if (writer->xid < snap->horizon)
				snap->horizon = writer->xid;
		}
	}
	snap->visibility.xmin = (uint32_t) snap->horizon;
}

static const HeraldVisibility *
visibility(Snap *snap)
{
	snap->visibility.running = snap->running;
	return &snap->visibility;
}

/* The xmin that the server has for this session; it takes a snapshot if it holds none. */
static uint32_t
xmin_of(World *world, Session *session)
{
	uint64_t	oldest = UINT64_MAX;

	for (int i = 0; i < SNAPSHOTS; i++)
		if (session->snaps[i].is_held && session->snaps[i].horizon < oldest)
			oldest = session->snaps[i].horizon;
	if (oldest == UINT64_MAX)
	{
		Snap		snap;

		take_snapshot(world, &snap);
		oldest = snap.horizon;
	}
	return (uint32_t) oldest;
}

/* As reader.c does it. */
static uint32_t
without_future(uint32_t *xids, uint32_t count, uint32_t next)
{
	uint32_t	left = 0;

	for (uint32_t i = 0; i < count; i++)
		if (herald_xid_precedes(xids[i], next))
			xids[left++] = xids[i];
	return left;
}

static void
join(World *world, Session *session)
{
	uint32_t	committing[2 * WRITERS];
	uint32_t	count = 0;
	Snap		now;

	session->position = world->head;
	let_writers_run(world);
	for (int w = 0; w < WRITERS; w++)
	{
		if (world->writers[w].committing != 0)
			committing[count++] = world->writers[w].committing;
		let_writers_run(world);
	}
	for (int w = 0; w < WRITERS; w++)
	{
		if (world->writers[w].prepared != 0)
			committing[count++] = world->writers[w].prepared;
		let_writers_run(world);
	}
	take_snapshot(world, &now);
	count = without_future(committing, count, (uint32_t) world->next_xid);
	let_writers_run(world);
	herald_freshness_join(session->freshness, visibility(&now), committing, count, session->room);
	memset(session->is_kept, 0, sizeof(session->is_kept));
	session->has_joined = true;
}

static void
forget(Session *session, const Message *message)
{
	for (int key = 0; key < KEYS; key++)
		if (key == message->key || (message->key < 0 && cache_of(key) == message->cache))
			session->is_kept[key] = false;
}

static void
note(World *world, Session *session, const Message *message)
{
	uint32_t	hash = hash_of(message->cache, message->key);
	Snap	   *snap = &session->snaps[below(world, SNAPSHOTS)];
	Snap		now;

	if (!world->is_by_snapshot)
	{
		herald_freshness_note(session->freshness, hash, message->xid,
							  world->is_xmin_known ? xmin_of(world, session) : 0);
		return;
	}

	/* Snapshots that are older will be refused. */
	if (!snap->is_held)
		take_snapshot(world, snap = &now);
	herald_freshness_note_seen(session->freshness, hash, message->xid, visibility(snap));
}

/* Read up to `count` messages; all, if it is negative. */
static void
read_queue(World *world, Session *session, int count)
{
	while (session->position < world->head && count-- != 0)
	{
		const Message *message;

		if (world->head - session->position > MESSAGES ||
			one_in(world, world->reset_one_in))
		{
			totals.resets++;
			join(world, session);
			continue;
		}
		message = &world->messages[session->position++ % MESSAGES];
		note(world, session, message);
		forget(session, message);
	}
}

/* Done before every use of the cache. */
static void
accept(World *world, Session *session)
{
	if (!session->has_joined)
		join(world, session);
	else if (world->is_xmin_known &&
			 !herald_freshness_advance(session->freshness, xmin_of(world, session)))
	{
		totals.worn_out++;
		join(world, session);
	}
	else
		read_queue(world, session, -1);
}

static bool
may_keep(Session *session, int key, Snap *snap)
{
	return herald_freshness_sees_missed(session->freshness, visibility(snap)) &&
		herald_freshness_sees(session->freshness, hash_of(cache_of(key), key), visibility(snap)) &&
		herald_freshness_sees(session->freshness, hash_of(cache_of(key), -1), visibility(snap));
}

/* Has the key been changed after `from`, and up to `to`? */
static bool
is_changed_between(const World *world, int key, uint64_t from, uint64_t to)
{
	uint64_t	n = world->changes[key];

	for (uint64_t i = n > HISTORY ? n - HISTORY : 0; i < n; i++)
	{
		uint64_t	when = world->changed[key][i % HISTORY];

		if (from < when && when <= to)
			return true;
	}
	return false;
}

static void
use(World *world, Session *session, int key, const Snap *snap)
{
	accept(world, session);
	if (!session->is_kept[key])
		return;
	totals.hits++;
	if (is_changed_between(world, key, session->kept_time[key], snap->time))
		fail_msg("seed %llu, step %llu: key %d is stale", (unsigned long long) world->seed,
				 (unsigned long long) world->step, key);
}

static void
keep(World *world, Session *session)
{
	Snap	   *snap = &session->snaps[session->snap];

	session->is_computing = false;
	if (!session->has_joined)
		return;
	totals.could_be_kept += !is_changed_between(world, session->key, snap->time, UINT64_MAX);
	if (!may_keep(session, session->key, snap))
		return;
	totals.kept += !is_changed_between(world, session->key, snap->time, UINT64_MAX);
	session->is_kept[session->key] = true;
	session->kept_time[session->key] = snap->time;
}

static void
session_step(World *world)
{
	Session    *session = &world->sessions[below(world, SESSIONS)];
	int			i = (int) below(world, SNAPSHOTS);
	Snap	   *snap = &session->snaps[i];
	Session    *other;

	switch (below(world, 8))
	{
		case 0:
			if (!snap->is_held)
				take_snapshot(world, snap);
			break;
		case 1:
			if (!(session->is_computing && session->snap == i))
				snap->is_held = snap->is_held && (i == 0 && !one_in(world, 20));
			break;
		case 2:
			/* The transaction begins with another session's snapshot. */
			other = &world->sessions[below(world, SESSIONS)];
			if (!one_in(world, 4) || session->is_computing || !other->snaps[i].is_held)
				break;
			for (int s = 0; s < SNAPSHOTS; s++)
				session->snaps[s].is_held = false;
			*snap = other->snaps[i];
			break;
		case 3:
			if (session->has_joined)
				read_queue(world, session, (int) below(world, 4));
			break;
		case 4:
		case 5:
			if (session->is_computing)
				keep(world, session);
			else if (snap->is_held)
			{
				session->is_computing = true;
				session->key = (int) below(world, KEYS);
				session->snap = i;
				if (one_in(world, 2))
					accept(world, session);
			}
			break;
		default:
			if (snap->is_held)
				use(world, session, (int) below(world, KEYS), snap);
			break;
	}
}

/* Guards: nothing is refused for ever. */
static void
check_when_quiet(World *world)
{
	world->is_quiet = true;
	for (bool is_busy = true; is_busy;)
	{
		is_busy = false;
		for (int w = 0; w < WRITERS; w++)
			if (world->writers[w].phase != IDLE)
			{
				is_busy = true;
				writer_step(world);
			}
	}
	complete(world, world->next_xid - 1);
	for (int s = 0; s < SESSIONS; s++)
	{
		Session    *session = &world->sessions[s];

		session->is_computing = false;
		for (int i = 0; i < SNAPSHOTS; i++)
			session->snaps[i].is_held = false;
		take_snapshot(world, &session->snaps[0]);
		accept(world, session);
		for (int key = 0; key < KEYS; key++)
			if (!may_keep(session, key, &session->snaps[0]))
fail_msg("seed %llu, step %llu: key %d cannot be kept, and all is quiet",
						 (unsigned long long) world->seed, (unsigned long long) world->step, key);
	}
	world->is_quiet = false;
}

static void
run_world(uint64_t seed)
{
	World	   *world = calloc(1, sizeof(World));

	world->seed = world->random = seed;
	world->jump_one_in = one_in(world, 3) ? 0 : 10 + below(world, 1000);
	world->is_xmin_known = world->jump_one_in > 0 || !one_in(world, 4);
	world->is_by_snapshot = world->is_xmin_known && one_in(world, 2);
	if (!world->is_by_snapshot)
		world->prepared_percent = below(world, 60);
	world->reset_one_in = 20 + below(world, 500);
	world->slow_percent = below(world, 30);
	world->quiet_percent = 10 + below(world, 80);
	world->busy_percent = 10 + below(world, 80);
	world->next_xid = next_random(world) % (UINT64_C(1) << 33) + REACH;
	if (one_in(world, 2))
		world->next_xid = (UINT64_C(1) << 32) - below(world, 1000);
	complete(world, take_xid(world));
	for (int s = 0; s < SESSIONS; s++)
	{
		world->sessions[s].freshness = memory_new(sizeof(HeraldFreshness));
		herald_freshness_init(world->sessions[s].freshness);
	}

	for (world->step = 0; world->step < STEPS; world->step++)
	{
		if (below(world, 100) < world->busy_percent)
			writer_step(world);
		else
			session_step(world);
		if (one_in(world, 2000))
			check_when_quiet(world);
	}

	for (int s = 0; s < SESSIONS; s++)
		free(world->sessions[s].freshness);
	free(world);
}

static void
test_worlds(void **state UNUSED)
{
	const char *seed = getenv("HERALD_TEST_SEED");

	if (seed != NULL)
		run_world(strtoull(seed, NULL, 10));
	else
		for (uint64_t s = 1; s <= SEEDS; s++)
			run_world(s);

	printf("%llu hits, %llu of %llu kept that could be, %llu resets, %llu worn out, %llu jumps\n",
		   (unsigned long long) totals.hits, (unsigned long long) totals.kept,
		   (unsigned long long) totals.could_be_kept, (unsigned long long) totals.resets,
		   (unsigned long long) totals.worn_out, (unsigned long long) totals.jumps);
	if (seed == NULL)
	{
		assert_true(totals.hits > 10000);
		assert_true(totals.resets > 100 && totals.worn_out > 100 && totals.jumps > 100);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worlds),
	};

	return cmocka_run_group_tests_name("freshness_world", tests, NULL, NULL);
}
