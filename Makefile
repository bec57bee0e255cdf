# pg_herald: LISTEN and NOTIFY that scale; and pg_herald_cache, caches over its C interface (cache.mk).
#
#   make && make install        with PG_CONFIG=... for another PostgreSQL
#   make installcheck           the SQL tests with what is installed, as packages are tested
#   ./check                     builds, and runs the tests

EXTENSION = pg_herald
DATA = sql/pg_herald--1.0.sql

HEADERS_pg_herald = src/api/pg_herald_api.h

MODULE_big = pg_herald
OBJS = \
	src/hooks.o src/memory.o src/pg_herald.o src/transaction.o \
	src/views/relay_view.o src/views/views.o \
	src/workers/housekeeper.o src/workers/relay_worker.o src/workers/watchdog.o src/workers/worker.o \
	src/api/api.o src/api/reason_names.o \
	src/notify/sql/listen.o src/notify/sql/read.o src/notify/sql/read_row.o \
	src/notify/listener/actions.o src/notify/listener/deliver.o src/notify/listener/frames.o \
	src/notify/listener/heartbeat.o src/notify/listener/moderation.o src/notify/listener/position_channel.o \
	src/notify/listener/read_buffer.o src/notify/listener/resumption.o src/notify/listener/server_steps.o \
	src/notify/listener/session.o src/notify/listener/subscriptions.o \
	src/notify/cursor/cursor.o src/notify/cursor/cut.o src/notify/cursor/wal_source.o \
	src/notify/sender/admission.o src/notify/sender/gap.o src/notify/sender/large_transaction.o \
	src/notify/sender/log_writer.o src/notify/sender/notify.o src/notify/sender/pending.o src/notify/sender/publish.o \
	src/notify/sender/retarget.o \
	src/notify/settings/channel_settings.o src/notify/settings/log_setting.o src/notify/settings/set_channel.o \
	src/notify/position/anchor.o src/notify/position/bypass.o src/notify/position/gone.o src/notify/position/kept.o \
	src/notify/position/lag.o src/notify/position/last_logged.o src/notify/position/token.o \
	src/notify/relay/conflict.o src/notify/relay/relay.o \
	src/notify/dispatch/damage.o src/notify/dispatch/dispatch.o src/notify/dispatch/turns.o \
	src/notify/channels/channel_map.o src/notify/channels/quota.o \
	src/notify/wal/reorder.o src/notify/wal/wal_origin.o src/notify/wal/wal_reader.o src/notify/wal/wal_record.o \
	src/notify/storage/files.o src/notify/storage/large_reader.o src/notify/storage/large_writer.o \
	src/notify/storage/spill.o \
	src/base/activation.o src/base/channel_hash.o src/base/database.o src/base/entry.o src/base/involvement.o src/base/outbox.o src/base/own_channels.o \
	src/base/attention.o src/base/row.o src/base/settings.o src/base/shared.o src/base/signal.o src/base/slow_ends.o \
	src/base/subtransaction_levels.o src/base/suppress_messages.o src/base/waits.o src/base/wake_watchdog.o \
	src/core/large_table.o src/core/listener_word.o src/core/moderation_rules.o \
	src/core/queue.o src/core/queue_reader.o src/core/retention.o src/core/segment_databases.o \
	src/core/sequencer.o src/core/session_state.o src/core/wakeup.o src/core/wal_coverage.o src/core/wal_history.o \
	src/core/receipt.o src/core/wal_message.o src/core/wal_parts.o src/core/wal_running.o

ifdef STOP_POINTS
OBJS += src/testing/armed_points.o src/testing/test_views.o
endif

# The SQL tests run on the server that the environment names, which has to preload pg_herald; if it names none, on
# a temporary one. test/run_sql.py reads the same lists, and runs some of the tests on a stock server as well.
given_server = $(srcdir)/test/given_server '$(bindir)/psql'
scheduled = $(shell grep -hv '^\#' $(srcdir)/test/$(1)/schedule_same_as_stock $(srcdir)/test/$(1)/schedule_herald_only)
REGRESS = $(filter-out $(shell $(given_server) left_out),$(call scheduled,regress))
REGRESS_OPTS = --inputdir=$(srcdir)/test/regress --launcher=$(srcdir)/test/regress/without_pids $(TEST_OPTS)
ISOLATION = $(call scheduled,isolation)
ISOLATION_OPTS = --inputdir=$(srcdir)/test/isolation $(TEST_OPTS)
TEST_OPTS = --load-extension=pg_herald
ENCODING = UTF8
NO_LOCALE = 1

ifeq (,$(PGHOST)$(PGHOSTADDR)$(PGPORT)$(PGSERVICE))
NO_INSTALLCHECK = 1
endif

include $(dir $(firstword $(MAKEFILE_LIST)))common.mk

ifdef NO_INSTALLCHECK
installcheck:
	PG_CONFIG='$(PG_CONFIG)' $(srcdir)/test/temporary_server $(MAKE) -f $(firstword $(MAKEFILE_LIST)) installcheck
else
installcheck: server_preloads
.PHONY: server_preloads
server_preloads:
	@$(given_server) preloads
endif

# The other library comes second, and one step after the other: both link some of the same objects.
with_cache = all clean install installdirs uninstall
$(foreach goal,$(with_cache),$(eval $(goal): $(goal)-cache))
$(with_cache:=-cache): %-cache:
	$(MAKE) -f $(patsubst %/,%,$(srcdir))/cache.mk $*
all-cache: $(shlib)
install-cache: all-cache
.PHONY: $(with_cache:=-cache)
