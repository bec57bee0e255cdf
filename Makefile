# pg_herald: LISTEN and NOTIFY that scale.
#
#   make && make install        with PG_CONFIG=... for another PostgreSQL
#   ./check                     builds, and runs every test

EXTENSION = pg_herald
DATA = sql/pg_herald--1.0.sql

HEADERS_pg_herald = src/api/pg_herald_api.h

MODULE_big = pg_herald
OBJS = \
	src/pg_herald.o src/settings.o src/shared.o src/hooks.o src/hush.o src/outbox.o src/transaction.o src/waits.o \
	src/core/log.o src/core/log_reader.o src/core/dispatcher.o \
	src/core/listener_word.o src/core/moderation_rules.o src/core/wakeup.o src/core/spilled.o \
	src/core/inval_queue.o src/core/freshness.o \
	src/sender/activation.o src/sender/notify.o src/sender/overflow.o src/sender/pending.o \
	src/sender/publish.o src/sender/retarget.o \
	src/queue/files.o src/queue/large.o src/queue/spill.o \
	src/dispatch/attention.o src/dispatch/channel_map.o src/dispatch/damage.o src/dispatch/dispatch.o src/dispatch/lag.o \
	src/dispatch/signal.o src/dispatch/watchdog.o \
	src/listener/deliver.o src/listener/frames.o src/listener/moderation.o src/listener/quota.o \
	src/listener/session.o src/listener/subscriptions.o \
	src/invalidation/invalidate.o src/invalidation/reader.o \
	src/cache/functions.o src/cache/key.o src/cache/store.o src/cache/through.o src/cache/trigger.o \
	src/api/api.o src/api/reasons.o \
	src/views/caches.o src/views/views.o

PG_CPPFLAGS = -I$(srcdir)/src
PG_CFLAGS = -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-Wno-declaration-after-statement -Wno-missing-field-initializers

# The server keeps no track of which object depends on which header.
herald_headers = $(wildcard src/*.h src/*/*.h)

PG_CONFIG ?= pg_config

# For tests: named places at which a process can be made to wait, fail or die.
ifdef STOP_POINTS
OBJS += src/stop_point.o
PG_CPPFLAGS += -DHERALD_STOP_POINTS
endif

# Assertions, like the server's own, only where the server was built with them, or for tests.
ifeq (,$(STOP_POINTS)$(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure)))
PG_CPPFLAGS += -DNDEBUG
endif

# Calls within the module are bound when it is linked.  The server's own makefiles hide names from 16 on.
ifeq ($(shell uname -s),Linux)
SHLIB_LINK += -Wl,-Bsymbolic-functions
endif

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

$(OBJS) $(OBJS:.o=.bc): $(herald_headers)
