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
 * Deleting a file takes long if it is large, and the server reports it if
 * log_temp_files says so.  So under spill_lock a file is only taken out of the
 * books, and put on a list of this process's; it is deleted when the lock has
 * been released.  Nobody creates it a second time meanwhile, as no name is used
 * again, and nobody changes the set: the folders are deleted first, and that is
 * left to the last process that has something to delete in them.  A process cannot
 * go between the two steps, as it serves no interrupts there, unless it
 * crashes, and then the server restarts.  What could not be deleted is tried once
 * more with the folder.
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

#include "base/compat.h"
#include "base/hush.h"
#include "base/shared.h"
#include "base/waits.h"
#include "core/stop_point.h"
#include "notify/storage/files.h"

/* The most bytes of one read or write. */
#define IO_MAX			((uint64) 64 * 1024 * 1024)

/* Those of one hold of the lock: every file that is no segment, and few stretches of segments. */
#define DOOMED_MAX		(HERALD_LARGE_FILES_MAX + 64)

/* Room for a file's name. */
#define NAME_MAX_BYTES	48

struct HeraldFiles
{
	/* Under spill_lock; the set is constant while there are files, or folders. */
	char		tablespaces[HERALD_TABLESPACES_MAX];
	FileSet		set;

	_Atomic bool has_folders;	/* set whenever a file is created */
	_Atomic uint32_t deleters;	/* processes that have doomed files, and not deleted them yet */
};

/* Files from one number up to another. */
typedef struct Doomed
{
	HeraldFileKind kind;
	uint64		from;
	uint64		to;
} Doomed;

static struct
{
	FileSet		set;			/* that they are in */
	int			count;
	Doomed		files[DOOMED_MAX];
}			doomed;

static bool delete_last(void *arg);
static bool delete_folders(void *arg);
static void make_name(char *name, HeraldFileKind kind, uint64 number);
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

void
herald_files_set_tablespaces(const char *names)
{
	strlcpy(herald_files->tablespaces, names, HERALD_TABLESPACES_MAX);
}

void
herald_files_get_tablespaces(char *names)
{
	memcpy(names, herald_files->tablespaces, HERALD_TABLESPACES_MAX);
}

FileSet
herald_files_resolve(const char *names)
{
	FileSet		set = {.creator_pid = PostmasterPid};

	set.ntablespaces = resolve_tablespaces(names, set.tablespaces, lengthof(set.tablespaces));
	return set;
}

void
herald_files_set_place(const FileSet *set)
{
	herald_files->set = *set;
}

File
herald_files_create(HeraldFileKind kind, uint64 number)
{
	char		name[NAME_MAX_BYTES];

	make_name(name, kind, number);
	atomic_store(&herald_files->has_folders, true);
	return FileSetCreate(&herald_files->set, name);
}

bool
herald_files_open(HeraldFileKind kind, uint64 number, File *file)
{
	char		name[NAME_MAX_BYTES];

	make_name(name, kind, number);
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
					 n == 0 ? errmsg("notification file \"%s\" is too short", FilePathName(file)) :
					 errmsg("could not read notifications from file \"%s\": %m",
							FilePathName(file)),
					 errhidestmt(true)));
			break;
		}
		done += n;
	}
	return done == length;
}

bool
herald_files_truncate(File file, uint64 length)
{
	return FileTruncate(file, (off_t) length, herald_wait(HERALD_WAIT_SPILL_WRITE)) == 0;
}

void
herald_files_doom(HeraldFileKind kind, uint64 number)
{
	Doomed	   *last = doomed.count > 0 ? &doomed.files[doomed.count - 1] : NULL;

	if (last != NULL && last->kind == kind && last->to == number)
	{
		last->to++;
		return;
	}
	if (last == NULL)
	{
		doomed.set = herald_files->set;
		atomic_fetch_add(&herald_files->deleters, 1);
	}

	/* There are no more; one that is left over would go with its folder. */
	Assert(doomed.count < DOOMED_MAX);
	if (doomed.count < DOOMED_MAX)
		doomed.files[doomed.count++] = (Doomed) {kind, number, number + 1};
}

bool
herald_files_delete_doomed(void)
{
	if (doomed.count == 0)
		return false;

	HERALD_HOLD_POINT("files-delete");
	while (doomed.count > 0)
		(void) herald_hushed(delete_last, NULL);
	atomic_fetch_sub(&herald_files->deleters, 1);
	return true;
}

bool
herald_files_have_folders(void)
{
	return atomic_load_explicit(&herald_files->has_folders, memory_order_relaxed);
}

void
herald_files_delete_folders(void)
{
	if (atomic_load(&herald_files->deleters) > 0)
		return;
	(void) herald_hushed(delete_folders, NULL);
	atomic_store(&herald_files->has_folders, false);
}

/* Each is off the list before it can fail. */
static bool
delete_last(void *arg)
{
	Doomed	   *last = &doomed.files[doomed.count - 1];
	char		name[NAME_MAX_BYTES];

	while (last->from < last->to)
	{
		make_name(name, last->kind, last->from++);
		(void) FileSetDelete(&doomed.set, name, false);
	}
	doomed.count--;
	return true;
}

/* They are empty, or what could not be deleted before is in them. */
static bool
delete_folders(void *arg)
{
	FileSetDeleteAll(&herald_files->set);
	return true;
}

static void
make_name(char *name, HeraldFileKind kind, uint64 number)
{
	snprintf(name, NAME_MAX_BYTES,
			 kind == HERALD_FILE_LARGE ? "herald.large." UINT64_FORMAT : "herald." UINT64_FORMAT,
			 number);
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
	pfree(copy);				/* a sender that waits for room comes by again and again */
	if (count == 0)
		oids[count++] = DEFAULTTABLESPACE_OID;
	return count;
}
