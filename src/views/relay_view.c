/*-------------------------------------------------------------------------
 *
 * relay_view.c
 *	  The function behind the view of a standby's relay.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogrecovery.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/pg_lsn.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/row.h"
#include "notify/relay/relay.h"

PG_FUNCTION_INFO_V1(herald_view_relay);

static bool seconds_behind(const HeraldReached *reached, const HeraldRelayFigures *figures, XLogRecPtr replayed,
						   float8 *seconds);


/* herald.get_relay() → setof record: one row while the relay is at work */
Datum
herald_view_relay(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HeraldReached reached;
	HeraldRelayFigures figures;
	XLogRecPtr	replayed;
	float8		seconds = 0;
	bool		is_known;
	HeraldRow	row;

	InitMaterializedSRF(fcinfo, 0);
	if (!herald_relay_is_active())
		return (Datum) 0;

	(void) herald_relay_reached(&reached);
	herald_relay_figures(&figures);
	replayed = GetXLogReplayRecPtr(NULL);
	row = herald_row_of(result->setDesc);
	herald_row_add(&row, "read_position", PG_LSNOID, LSNGetDatum(reached.wal));
	herald_row_add(&row, "replay_position", PG_LSNOID, LSNGetDatum(replayed));
	herald_row_add(&row, "bytes_behind", INT8OID,
				   UInt64GetDatum(replayed > reached.wal ? replayed - reached.wal : 0));
	is_known = seconds_behind(&reached, &figures, replayed, &seconds);
	herald_row_add_or_null(&row, "seconds_behind", FLOAT8OID, Float8GetDatum(seconds), !is_known);
	herald_row_add(&row, "batches", INT8OID, UInt64GetDatum(figures.batches));
	herald_row_add(&row, "forged", INT8OID, UInt64GetDatum(figures.forged));
	herald_row_add(&row, "newer", INT8OID, UInt64GetDatum(figures.newer));
	herald_row_add(&row, "gaps", INT8OID, UInt64GetDatum(figures.gaps));
	herald_row_store(&row, result);
	return (Datum) 0;
}

/* From the last commit that it has read to the last one that has been replayed, by the time of the primary. */
static bool
seconds_behind(const HeraldReached *reached, const HeraldRelayFigures *figures, XLogRecPtr replayed,
			   float8 *seconds)
{
	TimestampTz last = GetLatestXTime();

	if (reached->wal >= replayed)
		return true;
	*seconds = Max((float8) (last - figures->last_commit) / USECS_PER_SEC, 0);
	return last != 0 && figures->last_commit != 0;
}
