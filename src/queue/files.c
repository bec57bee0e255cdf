/*-------------------------------------------------------------------------
 *
 * files.c
 *	  The temporary files of the queue: where they are, reading and writing.
 *
 * The files are in a file set of the server's, as those of parallel queries
 * are: it puts them into temp_tablespaces, and removes them at its next start.
 * The set belongs to the postmaster's process id, which makes no file sets of
 * its own: a backend's would be deleted with one of another backend that later
 * gets the same process id.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>

#include "catalog/pg_tablespace_d.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "storage/fileset.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

#include "compat/compat.h"
#include "core/stop_point.h"
#include "queue/files.h"
#include "queue/spill.h"
#include "shared.h"
#include "waits.h"

#define TABLESPACES_MAX	1024	/* bytes of the setting */

/* The most bytes of one read or write. */
#define IO_MAX			((uint64) 64 * 1024 * 1024)

struct HeraldFiles
{
	/* Under spill_lock; the set is constant while there are files. */
	char		tablespaces[TABLESPACES_MAX];
	FileSet		set;
};

static int	resolve_tablespaces(const char *names, Oid *oids, int max);


Size
herald_files_shared_size(void)
{
	return sizeof(HeraldFiles);
}

void
herald_files_shared_init(void)
{
	memset((void *) herald_files, 0, sizeof(HeraldFiles));
	herald_files->set = (FileSet) {
		.creator_pid = PostmasterPid,
		.ntablespaces = 1,
		.tablespaces = {DEFAULTTABLESPACE_OID},
	};
}

bool
herald_files_set_tablespaces(const char *names)
{
	if (!LWLockConditionalAcquire(herald_control->spill_lock, LW_EXCLUSIVE))
		return false;
	strlcpy(herald_files->tablespaces, names, TABLESPACES_MAX);
	LWLockRelease(herald_control->spill_lock);
	return true;
}

/*
 * Each time that there are none, so that a tablespace can be dropped, and
 * temp_tablespaces be changed, in the meantime.
 */
void
herald_files_choose_place(void)
{
	char		names[TABLESPACES_MAX];
	FileSet		set = {.creator_pid = PostmasterPid};

	/* Who holds the lock now has chosen already. */
	if (herald_spill_has_files() ||
		!LWLockConditionalAcquire(herald_control->spill_lock, LW_SHARED))
		return;
	memcpy(names, herald_files->tablespaces, TABLESPACES_MAX);
	LWLockRelease(herald_control->spill_lock);
	HERALD_STOP_POINT("files-choose-place");
	set.ntablespaces = resolve_tablespaces(names, set.tablespaces, lengthof(set.tablespaces));

	if (!LWLockConditionalAcquire(herald_control->spill_lock, LW_EXCLUSIVE))
		return;
	if (!herald_spill_has_files())
		herald_files->set = set;
	LWLockRelease(herald_control->spill_lock);
}

File
herald_files_create(const char *name)
{
	File		file;

	/* What the server has opened, not created, does not count for temp_file_limit. */
	FileClose(FileSetCreate(&herald_files->set, name));
	file = FileSetOpen(&herald_files->set, name, O_RDWR);
	if (file <= 0)
		elog(ERROR, "temporary file \"%s\" is gone", name);
	return file;
}

bool
herald_files_open(const char *name, File *file)
{
	HERALD_FAULT_POINT("files-open");
	*file = FileSetOpen(&herald_files->set, name, O_RDONLY);
	return *file > 0;
}

bool
herald_files_write(File file, const char *bytes, uint64 length, uint64 offset)
{
	uint64		done = 0;

	while (done < length)
	{
		int			n = FileWrite(file, unconstify(char *, bytes) + done,
								  Min(length - done, IO_MAX), (off_t) (offset + done),
								  herald_wait(HERALD_WAIT_SPILL_WRITE));

		if (n <= 0)
		{
			int			save_errno = errno;

			ereport(LOG_SERVER_ONLY,
					(errcode_for_file_access(),
					 errmsg("could not write notifications to file \"%s\": %m",
							FilePathName(file)),
					 errhidestmt(true)));
			errno = save_errno;
			return false;
		}
		done += n;
	}
	return true;
}

bool
herald_files_read(File file, char *bytes, uint64 length, uint64 offset)
{
	uint64		done = 0;

	while (done < length)
	{
		int			n = FileRead(file, bytes + done, Min(length - done, IO_MAX),
								 (off_t) (offset + done), herald_wait(HERALD_WAIT_SPILL_READ));

		if (n <= 0)
		{
			ereport(LOG_SERVER_ONLY,
					(errcode_for_file_access(),
					 n == 0 ? errmsg("file \"%s\" of notifications is too short", FilePathName(file)) :
					 errmsg("could not read notifications from file \"%s\": %m",
							FilePathName(file)),
					 errhidestmt(true)));
			break;
		}
		done += n;
	}
	return done == length;
}

void
herald_files_delete(const char *name)
{
	(void) FileSetDelete(&herald_files->set, name, false);

	/* The folders too, so that a tablespace can be dropped. */
	if (!herald_spill_has_files())
		FileSetDeleteAll(&herald_files->set);
}

/* As many as there are; at least the default one. */
static int
resolve_tablespaces(const char *names, Oid *oids, int max)
{
	char	   *copy = pstrdup(names);
	List	   *list;
	ListCell   *cell;
	int			count = 0;

	/* The server has checked the syntax. */
	if (SplitIdentifierString(copy, ',', &list))
	{
		foreach(cell, list)
		{
			const char *name = lfirst(cell);
			Oid			oid = *name == '\0' ? DEFAULTTABLESPACE_OID : get_tablespace_oid(name, true);

			if (OidIsValid(oid) && count < max)
				oids[count++] = oid;
		}
	}
	list_free(list);
	pfree(copy);				/* senders that wait for room come by each ms */
	if (count == 0)
		oids[count++] = DEFAULTTABLESPACE_OID;
	return count;
}
