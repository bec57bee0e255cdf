#!/bin/sh
# Run by the image when it has made a new cluster: the first database has the extension, and so has each that
# is created later.
set -eu
for database in template1 "$POSTGRES_DB"; do
	psql -X -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$database" -c 'CREATE EXTENSION IF NOT EXISTS pg_herald'
done
