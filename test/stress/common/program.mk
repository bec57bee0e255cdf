# One program of the stress.  Its Makefile says what it tries, and includes this:
#
#   CORE_FILES            the files of src/core/ that are in the program
#   JITTER_<file>.o       flags for one file: mostly that it pauses less often than others
#   CHECK_SECONDS         how long `make check` runs it
#   CHECK_CANARIES        which canaries `make some-canaries` tries: all if there is nothing
#   LIMITS                flags that lower limits of src/core/
#   CANARY_JITTER         what the canaries' files are compiled with instead
#
# CORE, BUILD and JITTER, the header that comes before everything else, have defaults.

CC ?= cc
CORE ?= ../../../src/core
BUILD ?= ../build/$(notdir $(CURDIR))
SECONDS_RUN ?= 10
SEED ?=
CANARIES ?=

JITTER ?= -include jitter.h
FLAGS = -std=gnu11 -g -Wall -Wextra -Werror -UNDEBUG -pthread -I../common $(LIMITS)
RUN_ARGS = --seconds $(SECONDS_RUN) $(if $(SEED),--seed $(SEED))

OBJECTS = $(patsubst %.c,%.o,$(notdir $(wildcard *.c ../common/*.c)) $(CORE_FILES))
HEADERS = $(wildcard *.h ../common/*.h $(CORE)/*.h)

VARIANTS += plain tsan asan
VARIANT_plain = -O1
VARIANT_tsan = -O1 -fsanitize=thread
VARIANT_asan = -O1 -fsanitize=address,undefined -fno-sanitize-recover=all

.DEFAULT_GOAL = plain
export TSAN_OPTIONS = halt_on_error=1 exitcode=66

vpath %.c . ../common $(CORE)

define variant_rules
$(1): $(BUILD)/$(1)/stress
	$$< $$(RUN_ARGS)

$(BUILD)/$(1)/%.o: %.c $(HEADERS)
	@mkdir -p $$(@D)
	$$(CC) $$(FLAGS) $$(VARIANT_$(1)) $$(JITTER) $$(JITTER_$$*.o) -I$$(CORE) -c -o $$@ $$<

$(BUILD)/$(1)/stress: $(addprefix $(BUILD)/$(1)/,$(OBJECTS))
	$$(CC) $$(FLAGS) $$(VARIANT_$(1)) -o $$@ $$^
endef

$(foreach variant,$(VARIANTS),$(eval $(call variant_rules,$(variant))))

canary: $(BUILD)/plain/stress
	CC="$(CC)" CORE="$(CORE)" FLAGS="$(FLAGS) $(VARIANT_plain) $(JITTER) $(CANARY_JITTER)" OBJECTS="$(BUILD)/plain" \
		../../canary $(BUILD) $(CANARIES)

check:
	$(MAKE) plain SECONDS_RUN=$(CHECK_SECONDS)
	$(MAKE) tsan SECONDS_RUN=$$((2 * $(CHECK_SECONDS)))
	$(MAKE) asan SECONDS_RUN=$(CHECK_SECONDS)

some-canaries:
	$(MAKE) canary CANARIES="$(CHECK_CANARIES)"

clean:
	rm -rf $(BUILD)

.PHONY: $(VARIANTS) canary some-canaries check clean
