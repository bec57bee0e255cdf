/*-------------------------------------------------------------------------
 *
 * files.h
 *	  The temporary files of the queue: where they are, reading and writing.
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

/* So many at a time, besides those of segments. */
#define HERALD_LARGE_FILES_MAX	8192

/* Bytes of temp_tablespaces that are known. */
#define HERALD_TABLESPACES_MAX	1024

/* A file is known by its kind and a number, which is not used again once it is deleted. */
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
 * temp_tablespaces, as the watchdog knows it.  Under spill_lock.
 */
extern void herald_files_set_tablespaces(const char *names);
extern void herald_files_get_tablespaces(char *names);

/* What these names mean.  In a transaction; may throw. */
extern FileSet herald_files_resolve(const char *names);

/* The next files go there.  There are none now, and no folders; under spill_lock. */
extern void herald_files_set_place(const FileSet *set);

/*
 * Create a file, empty if it exists.  It belongs to CurrentResourceOwner, and
 * counts for temp_file_limit as long as it is open.  May throw.
 */
extern File herald_files_create(HeraldFileKind kind, uint64 number);

/* Open one to read.  False: there is none.  May throw. */
extern bool herald_files_open(HeraldFileKind kind, uint64 number, File *file);

/*
 * Write or read `length` bytes at `offset`.  False: it did not work, and the
 * log says why; errno too, after a write.  Writing throws past temp_file_limit.
 */
extern bool herald_files_write(File file, const char *bytes, uint64 length, uint64 offset);
extern bool herald_files_read(File file, char *bytes, uint64 length, uint64 offset);

/* Cut it off.  False: that does not work. */
extern bool herald_files_truncate(File file, uint64 length);

/* Files that are to be deleted: so many, from this number on, of so many bytes each. */
typedef struct HeraldDoomedFiles
{
	uint32		kind;			/* HeraldFileKind */
	uint32		count;
	uint64		from;
	uint64		bytes;
} HeraldDoomedFiles;

/* A file is to be deleted, if there is one.  Nobody else is to need it.  Under spill_lock. */
extern void herald_files_doom(HeraldFileKind kind, uint64 number, uint64 bytes);

/* Are there such files?  Are there very many, or of more than so many bytes altogether? */
extern bool herald_files_any_doomed(void);
extern bool herald_files_too_many_doomed(uint64 bytes_max);

/* Some of them, not too many for one go, and where they are.  False: there are none.  Under spill_lock. */
extern bool herald_files_next_doomed(HeraldDoomedFiles *files, FileSet *set);

/*
 * Delete these, with no lock held: that can take long, unless it is done in steps,
 * which needs a resource owner.  Returns how many bytes of a large file are left
 * for further steps; 0: they are deleted.  Never throws.
 */
extern uint64 herald_files_delete(const HeraldDoomedFiles *files, const FileSet *set, bool in_steps);

/*
 * Is a process at it?  Its files may have lost their names, but not their room yet.  And how
 * often has one been at it up to now?
 */
extern bool herald_files_are_being_deleted(void);
extern uint32 herald_files_deletions(void);

/* So it was done.  Under spill_lock. */
extern void herald_files_forget_doomed(const HeraldDoomedFiles *files, uint64 left);

/* Are there folders, which are to be deleted when there are no files? */
extern bool herald_files_have_folders(void);

/*
 * Delete them, so that a tablespace can be dropped.  There are no files, and none
 * to be deleted; under spill_lock.  Never throws.
 */
extern void herald_files_delete_folders(void);

#endif							/* HERALD_FILES_H */
