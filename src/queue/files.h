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

/* Room for a file's name. */
#define HERALD_FILE_NAME_MAX	48

/* Shared memory, for shared.c. */
extern Size herald_files_shared_size(void);
extern void herald_files_shared_init(void);

/*
 * The watchdog says where temporary files go: the server's own setting of
 * temp_tablespaces.  At its start and after a reload.  False: a file is being
 * written; try again later.
 */
extern bool herald_files_set_tablespaces(const char *names);

/*
 * Choose where the next files go, if there are none now.  By a sender, in its
 * transaction; may throw.
 */
extern void herald_files_choose_place(void);

/*
 * Create a file, empty if it exists.  It belongs to CurrentResourceOwner, and
 * does not count for temp_file_limit, which is for queries.  May throw.
 */
extern File herald_files_create(const char *name);

/* Open one to read.  False: there is none.  May throw. */
extern bool herald_files_open(const char *name, File *file);

/*
 * Write or read `length` bytes at `offset`.  False: it did not work, and the
 * log says why; errno too, after a write.
 */
extern bool herald_files_write(File file, const char *bytes, uint64 length, uint64 offset);
extern bool herald_files_read(File file, char *bytes, uint64 length, uint64 offset);

/* Delete a file, if there is one; with the last one its folder.  Under spill_lock. */
extern void herald_files_delete(const char *name);

#endif							/* HERALD_FILES_H */
