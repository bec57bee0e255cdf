# pg_herald_cache: session caches that changes invalidate.  Makefile calls this one.

EXTENSION = pg_herald_cache
DATA = sql/pg_herald_cache--1.0.sql

HEADERS_pg_herald_cache = src/cache/pg_herald_cache_api.h

MODULE_big = pg_herald_cache
OBJS = \
	src/cache/cache_api.o src/cache/caches_view.o src/cache/functions.o src/cache/key.o src/cache/pg_herald_cache.o \
	src/cache/store.o src/cache/through.o src/cache/trigger.o \
	src/inval/cache_involvement.o src/inval/cache_shared.o src/inval/catch_up.o src/inval/inval_reader.o \
	src/inval/invalidate.o src/inval/subscribers.o \
	src/base/row.o src/base/slow_ends.o src/base/subtransaction_levels.o \
	src/core/freshness.o src/core/inval_queue.o

ifdef STOP_POINTS
OBJS += src/testing/cache_points.o
endif

NO_INSTALLCHECK = 1
include $(dir $(firstword $(MAKEFILE_LIST)))common.mk
