package herald

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// table is the transactional store: one row for each consumer.
type table struct {
	name     string // of the table, as an identifier
	consumer string
}

// database is a connection, or a transaction.
type database interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

func newTable(c Config) table {
	return table{pgx.Identifier(strings.Split(c.Table, ".")).Sanitize(), c.Name}
}

// create makes the table, if it is not there. Without the privilege to create one, an existing one is good.
func (t table) create(ctx context.Context, db database) error {
	var exists bool
	if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", t.name).Scan(&exists); err != nil || exists {
		return err
	}
	_, err := db.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+t.name+` (
		name text PRIMARY KEY,
		position text,
		epoch bigint NOT NULL DEFAULT 0,
		changed_at timestamptz NOT NULL DEFAULT now()
	)`)
	if code := sqlstate(err); code == codeUnique || code == codeTableExists {
		return nil // another instance has made it at the same moment
	}
	return err
}

func (t table) activation() string {
	return fmt.Sprintf(`INSERT INTO %[1]s AS consumer (name, epoch) VALUES ($1, 1)
		ON CONFLICT (name) DO UPDATE SET epoch = consumer.epoch + 1, changed_at = now()
		RETURNING coalesce(position, ''), epoch`, t.name)
}

// check finds out whether the table is there and may be used, without a change.
func (t table) check(ctx context.Context, db database) error {
	_, err := db.Exec(ctx, "EXPLAIN "+t.activation(), t.consumer)
	return err
}

// activate counts an activation, and returns what is stored. It waits for a commit of an earlier connection that has not
// ended yet.
func (t table) activate(ctx context.Context, db database) (position string, epoch int64, err error) {
	err = db.QueryRow(ctx, t.activation(), t.consumer).Scan(&position, &epoch)
	return position, epoch, err
}

// save stores a position, or, if it is empty, that the consumer is active still; errSuperseded if it is not.
func (t table) save(ctx context.Context, db database, position string, epoch int64) error {
	tag, err := db.Exec(ctx, "UPDATE "+t.name+` SET position = coalesce(nullif($3, ''), position), changed_at = now()
		WHERE name = $1 AND epoch = $2`, t.consumer, epoch, position)
	if err == nil && tag.RowsAffected() == 0 {
		return errSuperseded
	}
	return err
}

// The lock that makes a consumer the only active one of its name. It belongs to the session of the work connection.
const (
	lockKey = "hashtextextended('herald_consumer:' || $1::text, 0)"
	tryLock = "SELECT pg_try_advisory_lock(" + lockKey + ")"
	unlock  = "SELECT pg_advisory_unlock(" + lockKey + ")"

	// An earlier session of this very consumer may have the lock still: its connection was lost, and the server has
	// not noticed. The start of the session tells it from a later one with its process ID.
	endEarlier = `SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
		JOIN pg_locks l ON l.pid = a.pid AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
		AND (l.classid::bigint << 32 | l.objid::bigint) = ` + lockKey + `
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		WHERE a.pid = $2 AND a.backend_start = $3`
)
