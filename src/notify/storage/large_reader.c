/*-------------------------------------------------------------------------
 *
 * large_reader.c
 *	  Reads large transactions' files.
 *
 * core/large_table.c has the table of these files, large_writer.c the owner's side.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "notify/storage/files.h"
#include "notify/storage/large_reader.h"


bool
herald_large_reader_read(uint64 number, uint64 offset, uint64 length, char *to)
{
	File		file;
	bool		success;

	/*
	 * Do not keep the file open while a slow client is served: a deleted file
	 * would still fill the disk.
	 */
	if (!herald_files_open(HERALD_FILE_LARGE, number, &file))
		return false;			/* given up */
	success = herald_files_read(file, to, length, offset);
	FileClose(file);
	return success;
}
