/*-------------------------------------------------------------------------
 *
 * files.c
 *	  The temporary files of the queue: their place, reading, writing and deleting.
 *
 * The files are in a file set of the server, like those of parallel queries: the server puts
 * them into temp_tablespaces, and removes them at its next start.  The set has the process id
 * of the postmaster, which creates no file sets of its own: a set with a backend's process id
 * would be deleted together with one of a later backend that gets the same process id.
 *
 * Deleting a large file takes long: half a second for gigabytes.  So a file that is not needed
 * any more is only noted in shared memory, and the housekeeper deletes it.  Until then the file
 * exists, and its name is not used again.  A file that could not be deleted is tried again with
 * the folder.
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
#include "base/shared.h"
#include "base/suppress_messages.h"
#include "base/waits.h"
#include "core/large_table.h"
#include "core/stop_point.h"
#include "notify/storage/files.h"

/* Maximum bytes of one read or write. */
#define IO_MAX			((uint64) 64 * 1024 * 1024)

/*
 * Twice the number of entries that can be added while the lock is held once: all files of
 * large transactions, and a few ranges of segments.
 */
#define DOOMED_MAX		(2 * (HERALD_LARGE_FILES_MAX + 64))

/* Room for a file's name. */
#define NAME_MAX_BYTES	48

/* A range of files to delete: `count` files from number `from` on, of `bytes` bytes each. */
typedef struct DoomedFiles
{
	uint32		kind;			/* HeraldFileKind */
	uint32		count;
	uint64		from;
	uint64		bytes;
} DoomedFiles;

struct HeraldFiles
{
	/*
	 * Under spill_lock; the set is constant while there are files, or
	 * folders.
	 */
	char		tablespaces[HERALD_TABLESPACES_MAX];
	FileSet		set;

	_Atomic bool has_folders;	/* set whenever a file is created */

	/* Files to delete; written under spill_lock. */
	_Atomic uint64_t doomed_bytes;
	_Atomic int doomed_count;
	DoomedFiles doomed[DOOMED_MAX];

	/* Number of files that have been deleted. */
	_Atomic uint32_t deleted;
};

static bool delete_file(void *arg);
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
	herald_files->set.creator_pid = PostmasterPid;
	herald_files->set.ntablespaces = 1;
	herald_files->set.tablespaces[0] = DEFAULTTABLESPACE_OID;
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
herald_files_write(File file, const char *bytes, uint64 length, uint64 offset, bool logs)
{
	uint64		done = 0;

	while (done < length)
	{
		ssize_t		n = FileWrite(file, unconstify(char *, bytes) + done,
								  Min(length - done, IO_MAX), (off_t) (offset + done),
								  herald_wait(HERALD_WAIT_SPILL_WRITE));

		if (n <= 0)
		{
			int			save_errno = errno;

			if (logs)
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
		ssize_t		n = FileRead(file, bytes + done, Min(length - done, IO_MAX),
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
herald_files_doom(HeraldFileKind kind, uint64 number, uint64 bytes)
{
	DoomedFiles *doomed = herald_files->doomed;
	int			count = atomic_load(&herald_files->doomed_count);

	if (count > 0 && doomed[count - 1].kind == kind && doomed[count - 1].bytes == bytes &&
		doomed[count - 1].from + doomed[count - 1].count == number)
		doomed[count - 1].count++;
	else
	{
		/*
		 * There cannot be more; a file that is left over would be deleted
		 * with its folder.
		 */
		Assert(count < DOOMED_MAX);
		if (count == DOOMED_MAX)
			return;
		doomed[count].kind = kind;
		doomed[count].count = 1;
		doomed[count].from = number;
		doomed[count].bytes = bytes;
		atomic_store(&herald_files->doomed_count, count + 1);
	}
	atomic_fetch_add(&herald_files->doomed_bytes, bytes);
}

bool
herald_files_any_doomed(void)
{
	return atomic_load_explicit(&herald_files->doomed_count, memory_order_relaxed) > 0;
}

bool
herald_files_too_many_doomed(uint64 bytes_max)
{
	return atomic_load(&herald_files->doomed_count) > DOOMED_MAX / 2 ||
		atomic_load(&herald_files->doomed_bytes) > bytes_max;
}

bool
herald_files_next_doomed(HeraldDoomedFile *file)
{
	if (!herald_files_any_doomed())
		return false;
	file->kind = herald_files->doomed[0].kind;
	file->number = herald_files->doomed[0].from;
	return true;
}

void
herald_files_delete(HeraldDoomedFile *file)
{
	HERALD_HOLD_POINT("files-delete");
	(void) herald_with_messages_suppressed(delete_file, file);
	HERALD_HOLD_POINT("files-deleted");
	atomic_fetch_add(&herald_files->deleted, 1);
}

uint32
herald_files_deleted(void)
{
	return atomic_load(&herald_files->deleted);
}

/* Others only add files meanwhile, at the end. */
void
herald_files_forget_doomed(void)
{
	DoomedFiles *first = &herald_files->doomed[0];
	int			last = atomic_load(&herald_files->doomed_count) - 1;

	first->from++;
	first->count--;
	atomic_fetch_sub(&herald_files->doomed_bytes, first->bytes);
	if (first->count == 0)
	{
		*first = herald_files->doomed[last];
		atomic_store(&herald_files->doomed_count, last);
	}
}

bool
herald_files_have_folders(void)
{
	return atomic_load_explicit(&herald_files->has_folders, memory_order_relaxed);
}

void
herald_files_delete_folders(void)
{
	(void) herald_with_messages_suppressed(delete_folders, NULL);
	atomic_store(&herald_files->has_folders, false);
}

static bool
delete_file(void *arg)
{
	HeraldDoomedFile *file = arg;
	char		name[NAME_MAX_BYTES];

	make_name(name, file->kind, file->number);
	(void) FileSetDelete(&herald_files->set, name, false);
	return true;
}

/* The folders are empty, or contain files that could not be deleted before. */
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

/* Resolve up to `max` names that exist; returns at least the default tablespace. */
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
	pfree(copy);				/* a sender that waits for room calls this
								 * repeatedly */
	if (count == 0)
		oids[count++] = DEFAULTTABLESPACE_OID;
	return count;
}
