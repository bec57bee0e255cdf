/*-------------------------------------------------------------------------
 *
 * files.h
 *	  The temporary files of the queue: their place, reading, writing and deleting.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_FILES_H
#define HERALD_FILES_H

#include "postgres.h"

#include "storage/fd.h"
#include "storage/fileset.h"

/* Maximum bytes that are stored of temp_tablespaces. */
#define HERALD_TABLESPACES_MAX	1024

/*
 * A file is identified by its kind and a number, which is not used again after the file is
 * deleted.
 */
typedef enum HeraldFileKind
{
	HERALD_FILE_SEGMENT,
	HERALD_FILE_LARGE
} HeraldFileKind;

/* Shared memory, for memory.c. */
extern Size herald_files_shared_size(void);
extern void herald_files_shared_init(void);

/*
 * The names of the tablespaces for temporary files: the server's own setting of
 * temp_tablespaces, as the housekeeper knows it.  Under spill_lock.
 */
extern void herald_files_set_tablespaces(const char *names);
extern void herald_files_get_tablespaces(char *names);

/* Look these names up.  In a transaction; may throw. */
extern FileSet herald_files_resolve(const char *names);

/*
 * Set the place of the next files.  There must be no files and no folders now; under
 * spill_lock.
 */
extern void herald_files_set_place(const FileSet *set);

/*
 * Create a file, or truncate an existing one.  It belongs to CurrentResourceOwner, and counts
 * for temp_file_limit as long as it is open.  May throw.
 */
extern File herald_files_create(HeraldFileKind kind, uint64 number);

/* Open a file for reading.  False: it does not exist.  May throw. */
extern bool herald_files_open(HeraldFileKind kind, uint64 number, File *file);

/*
 * Write or read `length` bytes at `offset`.  False: it failed; the reason is in the log, after a
 * write only if `logs`, and also in errno.  Writing past temp_file_limit throws.
 */
extern bool herald_files_write(File file, const char *bytes, uint64 length, uint64 offset, bool logs);
extern bool herald_files_read(File file, char *bytes, uint64 length, uint64 offset);

/* Truncate the file.  False: it failed. */
extern bool herald_files_truncate(File file, uint64 length);

/* A file to delete. */
typedef struct HeraldDoomedFile
{
	HeraldFileKind kind;
	uint64		number;
} HeraldDoomedFile;

/*
 * Queue a file for deletion.  It need not exist, and must not be needed any more.  Under
 * spill_lock.
 */
extern void herald_files_doom(HeraldFileKind kind, uint64 number, uint64 bytes);

/*
 * Are there files to delete?  Are there very many, or of more than bytes_max bytes in total?
 */
extern bool herald_files_any_doomed(void);
extern bool herald_files_too_many_doomed(uint64 bytes_max);

/* The next file to delete.  False: there is none.  Under deletion_lock and spill_lock. */
extern bool herald_files_next_doomed(HeraldDoomedFile *file);

/* Delete it, which can take long.  Under deletion_lock.  Never throws. */
extern void herald_files_delete(HeraldDoomedFile *file);

/* Then note that it is deleted.  Under deletion_lock and spill_lock. */
extern void herald_files_forget_doomed(void);

/* Number of files that have been deleted since the server started. */
extern uint32 herald_files_deleted(void);

/* Are there folders, which must be deleted when there are no files? */
extern bool herald_files_have_folders(void);

/*
 * Delete the folders, so that a tablespace can be dropped.  There must be no files, and none
 * to delete; under spill_lock.  Never throws.
 */
extern void herald_files_delete_folders(void);

#endif							/* HERALD_FILES_H */
