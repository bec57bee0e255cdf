# What the makefiles of the two libraries have in common.

PG_CPPFLAGS = -I$(srcdir)/src
PG_CFLAGS = -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-Wno-declaration-after-statement -Wno-missing-field-initializers

# Only what the server looks up is exported: the libraries have objects in common, and the server would bind the
# names of the second one to those of the first.  Its own makefiles hide names from 16 on.
PG_CFLAGS += -fvisibility=hidden

# The server keeps no track of which object depends on which header.
herald_headers = $(wildcard $(addprefix $(srcdir)/src/,*.h */*.h */*/*.h))

PG_CONFIG ?= pg_config

# No bitcode for the server's just-in-time compilation: a function that it inlines would look for our hidden names.
override with_llvm = no

# For tests: named places at which a process can be made to wait, fail or die.
ifdef STOP_POINTS
PG_CPPFLAGS += -DHERALD_STOP_POINTS
endif

# Assertions, like the server's own, only where the server was built with them, or for tests.
ifeq (,$(STOP_POINTS)$(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure)))
PG_CPPFLAGS += -DNDEBUG
endif

PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq (,$(wildcard $(PGXS)))
$(error $(PG_CONFIG) belongs to no server's development files; Debian has them in the package postgresql-server-dev-N)
endif
include $(PGXS)

# A header of the system's that is missing is told before anything is compiled.  In a folder of its own (VPATH), make needs
# folders for the objects.
$(OBJS): | can-compile
can-compile:
	@mkdir -p $(sort $(dir $(OBJS)))
	@echo '#include "base/client.h"' | $(CC) $(CFLAGS) $(CPPFLAGS) -fsyntax-only -xc - || { \
		echo "Debian's packages with these headers: libc6-dev, libssl-dev (openssl/)," \
			'postgresql-server-dev-$(MAJORVERSION) (postgres.h and libpq/)' >&2; exit 1; }
.PHONY: can-compile

# The server's own rule leaves the folder of the header.
uninstall: uninstall-header
.PHONY: uninstall-header
uninstall-header:
	rm -rf '$(DESTDIR)$(includedir_server)/$(incmoduledir)/$(EXTENSION)'

$(OBJS): $(herald_headers)
