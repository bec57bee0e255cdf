package herald

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A table is locked for longer than all attempts at the whole batch: no notification is the cause.
func TestTroubleThatPassesIsNoPoison(t *testing.T) {
	d := onHerald(t)
	c := d.trial(func(c *Config) {
		c.Attempts, c.Poison = 20, deadLetter
		c.Handle = func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '20ms'"); err != nil {
				return err
			}
			return bill(ctx, tx, batch)
		}
	}).start()
	c.untilEvent(Listening, 1)
	migration := d.connect()
	d.exec(migration, "BEGIN")
	d.exec(migration, "LOCK TABLE bill")
	d.order(3)
	c.untilEvent(Failing, c.config.Attempts+1) // the last one was one by one
	d.exec(migration, "ROLLBACK")
	d.untilBilled()
	if p := c.of(Poisoned); len(p) != 0 {
		t.Fatal(p)
	}
}

func TestStatementThatEndsTheTransaction(t *testing.T) {
	for _, statement := range []string{"COMMIT", "ROLLBACK"} {
		t.Run(statement, func(t *testing.T) {
			d := onHerald(t)
			c := d.trial(func(c *Config) {
				c.Attempts, c.Poison = 1, deadLetter
				c.Handle = func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
					_, err := tx.Exec(ctx, statement)
					return err
				}
			}).start()
			c.untilEvent(Listening, 1)
			before := d.ask("SELECT position FROM herald_consumer")
			d.order(1)
			if err := c.wait(); !errors.Is(err, ErrHandler) || !strings.Contains(err.Error(), "the transaction was ended") {
				t.Fatal(err)
			}
			if d.ask("SELECT position FROM herald_consumer") != before {
				t.Fatal("the position is ahead of what was handled")
			}
			if n := d.ask("SELECT count(*) FROM dead_letter"); n != "0" {
				t.Fatal("a notification is blamed")
			}
		})
	}
}

// Another instance becomes active while a handler waits for something without its context.
func TestHandlerThatDoesNotReturn(t *testing.T) {
	for name, store := range map[string]Store{"in the table": nil, "in an own store": &memory{}} {
		t.Run(name, func(t *testing.T) {
			d := onHerald(t)
			in, out := make(chan struct{}, 100), make(chan struct{})
			defer close(out)
			var handled atomic.Bool
			first := d.trial(func(c *Config) {
				c.Store, c.State, c.WorkTimeout = store, nil, time.Second
				c.Handle = func(context.Context, pgx.Tx, []Notification) error {
					in <- struct{}{}
					<-out
					return nil
				}
			}).start()
			first.untilEvent(Listening, 1)
			second := d.trial(func(c *Config) {
				c.Store, c.State = store, nil
				c.Handle = func(context.Context, pgx.Tx, []Notification) error {
					handled.Store(true)
					return nil
				}
			}).start()
			second.untilEvent(Waiting, 1)
			d.order(1)
			<-in
			d.until("the other one handles it", handled.Load)
		})
	}
}

type failingStore struct {
	memory
	failures atomic.Int64 // to come
}

func (s *failingStore) Save(ctx context.Context, position string) error {
	if s.failures.Add(-1) >= 0 {
		return errors.New("the store is restarting")
	}
	return s.memory.Save(ctx, position)
}

func TestStoreThatFails(t *testing.T) {
	d := onHerald(t)
	store := &failingStore{}
	table := d.trial(func(c *Config) { c.Attempts = 1 }).start()
	own := d.trial(func(c *Config) {
		c.Name, c.Attempts, c.State, c.Store = "own", 1, nil, store
		c.Handle = someHandler
	}).start()
	for _, c := range []*trial{table, own} {
		c.untilEvent(Listening, 1)
	}
	store.failures.Store(4)
	d.run("ALTER TABLE herald_consumer RENAME TO hidden")
	d.order(1)
	for _, c := range []*trial{table, own} {
		c.untilEvent(Disconnected, 4)
	}
	d.run("ALTER TABLE hidden RENAME TO herald_consumer")
	d.untilBilled()
	own.untilEvent(Handled, 1)
	for _, c := range []*trial{table, own} {
		if f := c.of(Failing); len(f) != 0 {
			t.Error(f)
		}
		if e := c.of(Disconnected)[0]; !errors.Is(e.Err, ErrStore) {
			t.Error(e.Err)
		}
	}
}

func TestStoreThatFailsAfterState(t *testing.T) {
	d := onHerald(t)
	store := &failingStore{}
	store.failures.Store(3)
	c := d.trial(func(c *Config) { c.Attempts, c.State, c.Store, c.Handle = 1, nil, store, someHandler }).start()
	c.untilEvent(Listening, 1)
	for _, e := range c.of(Disconnected) {
		if !errors.Is(e.Err, ErrStore) {
			t.Fatal(e.Err)
		}
	}
}

// What ends the connection is counted for itself, as in the handler.
func TestConnectionBreaksInState(t *testing.T) {
	d := onHerald(t)
	var breaks atomic.Int64
	change := func(c *Config) {
		c.Attempts = 1
		c.State = func(ctx context.Context, tx pgx.Tx, reason Reason) error {
			if breaks.Add(-1) >= 0 {
				_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
				return err
			}
			return billAll(ctx, tx, reason)
		}
	}
	breaks.Store(2)
	if err := d.trial(change).start().wait(); !errors.Is(err, ErrHandler) || sqlstate(err) != "57P01" {
		t.Fatal(err)
	}
	breaks.Store(1)
	d.trial(change).start().untilEvent(Listening, 1)
}

// As behind a pooler that shares sessions: the one that it gives listens already, and receives.
func TestSessionThatListensAlready(t *testing.T) {
	for _, on := range []func(*testing.T) *testDatabase{onHerald, onStock} {
		d := on(t)
		c := d.trial(func(c *Config) {
			c.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
				config.AfterConnect = func(ctx context.Context, connection *pgconn.PgConn) error {
					_, err := connection.Exec(ctx, "LISTEN orders; SELECT pg_notify('orders', 'stale')").ReadAll()
					return err
				}
				return nil
			}
		}).start()
		c.untilEvent(Listening, 1)
		d.order(3)
		d.untilBilled()
		if f := c.of(Failing); len(f) != 0 {
			t.Fatal(f)
		}
	}
}
