/*-------------------------------------------------------------------------
 *
 * inval.c
 *	  Compares policies of an invalidation queue without a server, but with real
 *	  processes, signals and locks.
 *
 *		inval POLICY --backends N --active N --size MESSAGES --messages N
 *			  --work STEPS --seconds S				figures, as JSON
 *
 * POLICY is old, published or herald: see old.c and core.c.
 *
 * This process is the client of all the others, like pgbench: it requests a
 * transaction of each active backend, and the next one after the answer.  The
 * other backends only read the queue when they are signalled.  The figures count
 * the backends' work from the end of the warm-up to the end.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "inval.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP_SHARE	0.25	/* the warm-up lasts at least this share of --seconds, */
#define WARM_UP_EACH	5		/* and this number of transactions per backend, to fill caches */
#define START_TIMEOUT_MS 10000
#define EVENTS			64
#define TICK_MS			10		/* largest delay of the end */

typedef struct Options
{
	const Policy *policy;
	uint32_t	backends;
	uint32_t	active;
	uint32_t	size;
	double		seconds;
	Load		load;
} Options;

/* The sums of all backends' counters and CPU time at one moment. */
typedef struct Snapshot
{
	uint64_t	ns;
	uint64_t	cpu_ns;
	uint64_t	counts[COUNTERS_COUNT];
} Snapshot;

static const char *const counter_names[COUNTERS_COUNT] = {
	"transactions", "messages", "reads", "resets", "missed", "rebuilt", "catch_ups", "signals",
	"shared", "exclusive", "waits", "waited_ns"
};

static_assert(offsetof(Counters, waited_ns) == (COUNTERS_COUNT - 1) * sizeof(uint64_t),
			  "each counter has a name");

static const Policy *const policies[] = {&policy_old, &policy_published, &policy_herald};

static Options parse(int argc, char **argv);
static void *map_shared(size_t bytes);
static void start_backends(const Options *options, Shared *shared, HeraldInvalQueue *queue, int *sockets);
static void serve(const Options *options, Shared *shared, const int *sockets, Snapshot *began,
				  Snapshot *ended);
static void end_backends(const Shared *shared, const int *sockets);
static void report(const Options *options, const Snapshot *began, const Snapshot *ended,
				   uint64_t transactions_ever, double step_ns);


static _Noreturn void
die(const char *what)
{
	fprintf(stderr, "inval: %s: %s\n", what, strerror(errno));
	exit(1);
}

static _Noreturn void
usage(void)
{
	fputs("Usage: inval old|published|herald --backends N --active N --size MESSAGES --messages N "
		  "--work STEPS --seconds S\n", stderr);
	exit(2);
}

static double
measure_step_ns(void)
{
	uint64_t	best = UINT64_MAX;

	for (int i = 0; i < 10; i++)
	{
		uint64_t	began = clock_ns();

		(void) backend_work(100000);
		if (clock_ns() - began < best)
			best = clock_ns() - began;
	}
	return (double) best / 100000;
}

int
main(int argc, char **argv)
{
	Options		options = parse(argc, argv);
	Shared	   *shared = map_shared(sizeof(Shared));
	HeraldInvalQueue *queue = map_shared(options.policy->memory(options.size, options.backends));
	double		step_ns = measure_step_ns();
	int			sockets[BACKENDS_MAX];
	Snapshot	began;
	Snapshot	ended;
	uint64_t	transactions_ever = 0;

	lock_init(shared);
	shared->backends = options.backends;
	options.policy->init(queue, options.size, options.backends);
	start_backends(&options, shared, queue, sockets);
	serve(&options, shared, sockets, &began, &ended);
	end_backends(shared, sockets);
	for (uint32_t i = 0; i < options.backends; i++)
		transactions_ever += shared->counters[i].transactions;
	report(&options, &began, &ended, transactions_ever, step_ns);
	return 0;
}

static uint32_t
whole(const char *text, uint32_t max)
{
	char	   *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end != '\0' || value > max)
		usage();
	return (uint32_t) value;
}

static Options
parse(int argc, char **argv)
{
	Options		options = {0};

	if (argc < 2 || argc % 2 != 0)
		usage();
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
		if (strcmp(argv[1], policies[i]->name) == 0)
			options.policy = policies[i];
	for (int i = 2; i < argc; i += 2)
	{
		const char *value = argv[i + 1];

		if (strcmp(argv[i], "--backends") == 0)
			options.backends = whole(value, BACKENDS_MAX);
		else if (strcmp(argv[i], "--active") == 0)
			options.active = whole(value, BACKENDS_MAX);
		else if (strcmp(argv[i], "--size") == 0)
			options.size = whole(value, 1 << 20);
		else if (strcmp(argv[i], "--messages") == 0)
			options.load.messages = whole(value, MESSAGES_MAX);
		else if (strcmp(argv[i], "--work") == 0)
			options.load.work_steps = whole(value, UINT32_MAX);
		else if (strcmp(argv[i], "--seconds") == 0)
			options.seconds = strtod(value, NULL);
		else
			usage();
	}
	if (options.policy == NULL || options.active == 0 || options.active > options.backends ||
		options.size < HERALD_INVAL_SIZE_MIN || (options.size & (options.size - 1)) != 0 ||
		options.seconds <= 0)
		usage();
	return options;
}

/* Zeroed, and populated, so that no page fault is measured. */
static void *
map_shared(size_t bytes)
{
	void	   *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
							  MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

/* Starts the backends, and waits until all have joined the queue. */
static void
start_backends(const Options *options, Shared *shared, HeraldInvalQueue *queue, int *sockets)
{
	pid_t		parent = getpid();

	for (uint32_t slot = 0; slot < options->backends; slot++)
	{
		int			pair[2];
		pid_t		pid;

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
			die("socketpair");
		pid = fork();
		if (pid < 0)
			die("fork");
		if (pid == 0)
		{
			Backend		self = {
				.shared = shared,.queue = queue,.policy = options->policy,
				.counters = &shared->counters[slot],.slot = slot
			};

			/* Only the parent keeps the other ends of sockets open, and no backend outlives it. */
			for (uint32_t i = 0; i < slot; i++)
				close(sockets[i]);
			close(pair[0]);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
			backend_main(&self, &options->load, pair[1]);
		}
		close(pair[1]);
		sockets[slot] = pair[0];
		shared->pids[slot] = pid;	/* no backend sends signals before all have started */
	}
	for (uint32_t slot = 0; slot < options->backends; slot++)
	{
		struct pollfd poll_for = {.fd = sockets[slot],.events = POLLIN};
		char		byte;

		if (poll(&poll_for, 1, START_TIMEOUT_MS) != 1 || read(sockets[slot], &byte, 1) != 1)
			die("a backend does not begin");
	}
}

static Snapshot
take_snapshot(const Options *options, Shared *shared)
{
	Snapshot	snapshot = {.ns = clock_ns()};

	for (uint32_t slot = 0; slot < options->backends; slot++)
	{
		_Atomic uint64_t *counts = &shared->counters[slot].transactions;
		struct timespec used;
		clockid_t	clock;

		if (clock_getcpuclockid(shared->pids[slot], &clock) != 0 || clock_gettime(clock, &used) != 0)
			die("a backend has gone");
		snapshot.cpu_ns += (uint64_t) used.tv_sec * UINT64_C(1000000000) + (uint64_t) used.tv_nsec;
		for (int i = 0; i < COUNTERS_COUNT; i++)
			snapshot.counts[i] += atomic_load_explicit(&counts[i], memory_order_relaxed);
	}
	return snapshot;
}

static void
ask(int socket)
{
	char		byte = 0;

	if (write(socket, &byte, 1) != 1)
		die("a backend has gone");
}

/* Requests transactions of the active backends, from the warm-up to the end. */
static void
serve(const Options *options, Shared *shared, const int *sockets, Snapshot *began, Snapshot *ended)
{
	int			epoll = epoll_create1(EPOLL_CLOEXEC);
	uint64_t	now = clock_ns();
	uint64_t	begin_ns = now + (uint64_t) (1e9 * options->seconds * WARM_UP_SHARE);
	uint64_t	end_ns = UINT64_MAX;
	uint64_t	transactions = 0;
	bool		warm = false;

	for (uint32_t slot = 0; slot < options->active; slot++)
	{
		struct epoll_event event = {.events = EPOLLIN,.data.fd = sockets[slot]};

		if (epoll_ctl(epoll, EPOLL_CTL_ADD, sockets[slot], &event) != 0)
			die("epoll_ctl");
		ask(sockets[slot]);
	}
	while (now < end_ns)
	{
		struct epoll_event events[EVENTS];
		int			found = epoll_wait(epoll, events, EVENTS, TICK_MS);

		if (found < 0 && errno != EINTR)
			die("epoll_wait");
		for (int i = 0; i < found; i++)
		{
			char		byte;

			if (read(events[i].data.fd, &byte, 1) != 1)
				die("a backend has gone");
			ask(events[i].data.fd);
			transactions++;
		}
		now = clock_ns();
		if (!warm && now >= begin_ns && transactions >= WARM_UP_EACH * options->active)
		{
			*began = take_snapshot(options, shared);
			end_ns = now + (uint64_t) (1e9 * options->seconds);
			warm = true;
		}
	}
	*ended = take_snapshot(options, shared);
	close(epoll);
}

/* Reaps no process before all have ended: a running one may still send signals to its pid. */
static void
end_backends(const Shared *shared, const int *sockets)
{
	for (uint32_t slot = 0; slot < shared->backends; slot++)
		shutdown(sockets[slot], SHUT_WR);
	for (uint32_t slot = 0; slot < shared->backends; slot++)
	{
		siginfo_t	info;

		while (waitid(P_PID, (id_t) shared->pids[slot], &info, WEXITED | WNOWAIT) != 0)
			if (errno != EINTR)
				die("waitid");
	}
	for (uint32_t slot = 0; slot < shared->backends; slot++)
	{
		int			status;

		if (waitpid(shared->pids[slot], &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		{
			fputs("inval: a backend did not end well\n", stderr);
			exit(1);
		}
	}
}

/* The context switches include those of the warm-up. */
static void
report(const Options *options, const Snapshot *began, const Snapshot *ended, uint64_t transactions_ever,
	   double step_ns)
{
	struct rusage used;
	double		transactions = (double) (ended->counts[0] - began->counts[0]);

	getrusage(RUSAGE_CHILDREN, &used);
	printf("{\"elapsed_s\": %.6f, ", (double) (ended->ns - began->ns) / 1e9);
	for (int i = 0; i < COUNTERS_COUNT; i++)
		printf("\"%s\": %" PRIu64 ", ", counter_names[i], ended->counts[i] - began->counts[i]);
	printf("\"work_us\": %.1f, \"cpu_us\": %.1f, \"switches\": %.2f}\n",
		   (double) options->load.work_steps * step_ns / 1e3,
		   (double) (ended->cpu_ns - began->cpu_ns) / 1e3 / (transactions > 0 ? transactions : 1),
		   (double) (used.ru_nvcsw + used.ru_nivcsw) / (double) transactions_ever);
}
