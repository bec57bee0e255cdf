package herald

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestFirstStartThenEachOnce(t *testing.T) {
	d := onHerald(t)
	d.order(3)
	c := d.trial(nil).start()
	c.untilEvent(Listening, 1)
	for range 20 {
		d.order(1 + rand.IntN(5))
	}
	d.untilBilled()
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	if by := d.ask("SELECT string_agg(order_id::text, ' ' ORDER BY order_id) FROM bill WHERE by = 'state'"); by != "1 2 3" {
		t.Fatal(by)
	}
	want := []EventName{Active, ReadingState, Listening}
	if got := c.names(); !slices.Equal(got[:3], want) || got[len(got)-1] != Stopped {
		t.Fatal(got)
	}
	c.expectReasons(FirstStart)
	if server := c.of(Listening)[0].Server; server != d.url.Host {
		t.Fatal(server)
	}

	d.order(5) // while it is away
	c.start()
	d.untilBilled()
	c.expectReasons(FirstStart)
	if l := c.of(Listening)[1]; !l.Resumed || l.Stock {
		t.Fatalf("%+v", l)
	}
	if e := c.of(Active); e[0].Epoch != 1 || e[1].Epoch != 2 {
		t.Fatal(e)
	}
}

func TestEachOnceWhileConnectionsBreak(t *testing.T) {
	d := onHerald(t)
	p := d.proxy()
	c := d.trial(func(c *Config) {
		c.Connection = p.connection()
		c.Batch = 50
		c.WorkTimeout = 5 * time.Second // ends work in a connection that has become silent
	})
	c.start().untilEvent(Listening, 1)
	done := make(chan struct{})
	sender := d.connect()
	go func() {
		defer close(done)
		for range 150 {
			d.exec(sender, "INSERT INTO orders (item) SELECT 'pen' FROM generate_series(1, $1)", 1+rand.IntN(120))
			time.Sleep(rand.N(20 * time.Millisecond))
		}
	}()
	ways := []func(){d.terminate, p.reset, p.freeze, p.reset, d.terminate}
	for n, way := range ways {
		c.untilEvent(Listening, n+1)
		time.Sleep(rand.N(300 * time.Millisecond))
		way()
		c.untilEvent(Disconnected, n+1)
	}
	<-done
	d.untilBilled()
	c.expectReasons(FirstStart)
	if others := d.ask("SELECT count(*) FROM bill WHERE by <> 'handle'"); others != "0" {
		t.Fatal(others)
	}
}

func TestOneIsActiveAtATime(t *testing.T) {
	d := onHerald(t)
	first := d.trial(nil).start()
	first.untilEvent(Listening, 1)
	second := d.trial(nil).start()
	second.untilEvent(Waiting, 1)
	if n := d.ask("SELECT count(*) " + sessions); n != "3" {
		t.Fatalf("%s sessions: one that waits has only one", n)
	}
	d.order(10)
	d.untilBilled()
	began := time.Now()
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	second.untilEvent(Listening, 1)
	if took := time.Since(began); took > 10*beat {
		t.Fatalf("the second became active after %s", took)
	}
	d.order(10)
	d.untilBilled()
	second.expectReasons()
	if e := second.of(Active)[0].Epoch; e != 2 {
		t.Fatal(e)
	}
}

func TestAnotherOneBecomesActive(t *testing.T) {
	d := onHerald(t)
	c := d.trial(nil).start()
	c.untilEvent(Listening, 1)
	d.run("UPDATE herald_consumer SET epoch = epoch + 1")
	d.order(5)
	c.untilEvent(Superseded, 1)
	if n := d.ask("SELECT count(*) FROM bill"); n != "0" {
		t.Fatalf("%s bills of a transaction that was to be rolled back", n)
	}
	c.untilEvent(Active, 2)
	d.untilBilled()
	c.expectReasons(FirstStart)
}

func TestGone(t *testing.T) {
	d := onHerald(t)
	c := d.trial(nil).start()
	c.untilEvent(Listening, 1)
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	d.run("SET herald.enabled = off")
	d.order(3)
	d.run("RESET herald.enabled")
	c.start().untilEvent(Listening, 2)
	d.untilBilled()
	c.expectReasons(FirstStart, Gone)
	if l := c.of(Listening)[1]; l.Resumed {
		t.Fatal("something is missing")
	}
	d.order(1)
	d.untilBilled()
}

// parts makes the handler of a large transaction fail after some parts, a few times.
func TestLargeTransactionInParts(t *testing.T) {
	d := onHerald(t)
	var largest, fails atomic.Int64
	fails.Store(2)
	c := d.trial(func(c *Config) {
		c.Batch = 10
		c.Handle = func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
			largest.Store(max(largest.Load(), int64(len(batch))))
			if slices.ContainsFunc(batch, func(n Notification) bool { return n.Payload == "50" }) && fails.Add(-1) >= 0 {
				return errors.New("not yet")
			}
			return bill(ctx, tx, batch)
		}
	}).start()
	c.untilEvent(Listening, 1)
	d.order(95)
	d.untilBilled()
	if n := d.ask("SELECT count(DISTINCT xact) FROM bill"); n != "1" {
		t.Fatalf("%s transactions", n)
	}
	if largest.Load() != 10 {
		t.Fatal(largest.Load())
	}
	if n := len(c.of(Failing)); n != 2 {
		t.Fatal(n)
	}
	if h := c.untilEvent(Handled, 1); h.Count != 95 || h.Position == "" {
		t.Fatalf("%+v", h)
	}
	c.expectReasons(FirstStart)
}

// failsAt makes a handler that fails for one payload: with an error of the server, so that the transaction is aborted.
func failsAt(payload string) Handler {
	return func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
		for _, notification := range batch {
			if notification.Payload == payload {
				_, err := tx.Exec(ctx, "SELECT 1 / 0")
				return err
			}
			if err := bill(ctx, tx, []Notification{notification}); err != nil {
				return err
			}
		}
		return nil
	}
}

func deadLetter(ctx context.Context, tx pgx.Tx, notification Notification, cause error) (Decision, error) {
	_, err := tx.Exec(ctx, "INSERT INTO dead_letter VALUES ($1, $2)", notification.Payload, cause.Error())
	return Skip, err
}

func TestPoisonIsSkipped(t *testing.T) {
	for _, size := range []int{1000, 4} {
		t.Run(fmt.Sprintf("in batches of %d", size), func(t *testing.T) {
			d := onHerald(t)
			c := d.trial(func(c *Config) {
				c.Handle, c.Poison, c.Attempts, c.Batch = failsAt("7"), deadLetter, 3, size
			}).start()
			c.untilEvent(Listening, 1)
			d.order(10)
			d.untilTrue("SELECT count(*) = 9 FROM bill")
			letters := d.ask("SELECT string_agg(payload || error, ' ') FROM dead_letter")
			if !strings.HasPrefix(letters, "7ERROR: division by zero") {
				t.Fatal(letters)
			}
			if f := c.of(Failing); len(f) != 3 || f[2].Attempt != 3 {
				t.Fatal(f)
			}
			if p := c.of(Poisoned); len(p) != 1 || p[0].Payload != "7" || p[0].Channel != "orders" || p[0].Decision != Skip {
				t.Fatal(p)
			}
			d.order(1)
			d.untilTrue("SELECT count(*) = 10 FROM bill")
			if n := d.ask("SELECT count(*) FROM bill WHERE handled > 1"); n != "0" {
				t.Fatal(n)
			}
		})
	}
}

func TestPoisonStops(t *testing.T) {
	for name, poison := range map[string]PoisonHandler{
		"without": nil,
		"with": func(context.Context, pgx.Tx, Notification, error) (Decision, error) {
			return Stop, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := onHerald(t)
			c := d.trial(func(c *Config) { c.Handle, c.Poison, c.Attempts = failsAt("2"), poison, 2 }).start()
			c.untilEvent(Listening, 1)
			d.order(3)
			err := c.wait()
			var failed *HandlerError
			if !errors.As(err, &failed) || !errors.Is(err, ErrHandler) || sqlstate(err) != "22012" ||
				failed.Notification == nil || failed.Notification.Payload != "2" {
				t.Fatalf("%#v", err)
			}
			if n := d.ask("SELECT count(*) FROM bill"); n != "0" {
				t.Fatal("not rolled back:", n)
			}
			if e := c.of(Stopped); len(e) != 1 || e[0].Err != err {
				t.Fatal(e)
			}
			d.untilTrue("SELECT count(*) = 0 " + sessions)
		})
	}
}

// The transaction fails when it commits, whatever the handler does: it must not be tried for ever.
func TestCommitThatFails(t *testing.T) {
	d := onHerald(t)
	d.run("CREATE TABLE known (id bigint PRIMARY KEY)")
	d.run("ALTER TABLE bill ADD FOREIGN KEY (order_id) REFERENCES known DEFERRABLE INITIALLY DEFERRED")
	c := d.trial(func(c *Config) { c.Attempts, c.Poison = 2, deadLetter }).start()
	c.untilEvent(Listening, 1)
	d.order(2)
	if err := c.wait(); !errors.Is(err, ErrHandler) || sqlstate(err) != "23503" {
		t.Fatal(err)
	}
}

func TestPoisonHandlerFails(t *testing.T) {
	d := onHerald(t)
	d.run("DROP TABLE dead_letter")
	c := d.trial(func(c *Config) { c.Handle, c.Attempts, c.Poison = failsAt("2"), 2, deadLetter }).start()
	c.untilEvent(Listening, 1)
	d.order(2)
	if err := c.wait(); !errors.Is(err, ErrHandler) || sqlstate(err) != "42P01" {
		t.Fatal(err)
	}
	if n := d.ask("SELECT count(*) FROM bill"); n != "0" {
		t.Fatal(n)
	}
}

func TestHandlerDoesNotEndTheTransaction(t *testing.T) {
	d := onHerald(t)
	var refused atomic.Bool
	c := d.trial(func(c *Config) {
		c.Handle = func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
			defer func() { _ = tx.Rollback(ctx) }() // the usual line
			refused.Store(tx.Commit(ctx) != nil)
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return bill(ctx, tx, batch) })
		}
	}).start()
	c.untilEvent(Listening, 1)
	d.order(2)
	d.untilBilled()
	if !refused.Load() {
		t.Fatal("the handler has committed")
	}
}

func TestErrorThatTheHandlerHides(t *testing.T) {
	d := onHerald(t)
	c := d.trial(func(c *Config) {
		c.Attempts = 1
		c.Handle = func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
			_, _ = tx.Exec(ctx, "SELECT 1 / 0")
			return nil
		}
	}).start()
	c.untilEvent(Listening, 1)
	d.order(1)
	if err := c.wait(); !errors.Is(err, ErrHandler) || !strings.Contains(err.Error(), "no error was returned") {
		t.Fatal(err)
	}
}

func TestStateFails(t *testing.T) {
	d := onHerald(t)
	var fails atomic.Int64
	fails.Store(2)
	change := func(c *Config) {
		c.Attempts = 3
		c.State = func(ctx context.Context, tx pgx.Tx, reason Reason) error {
			if fails.Add(-1) >= 0 {
				return errors.New("not yet")
			}
			return billAll(ctx, tx, reason)
		}
	}
	d.order(3)
	c := d.trial(change).start()
	c.untilEvent(Listening, 1)
	d.untilBilled()
	if f := c.of(Failing); len(f) != 2 {
		t.Fatal(f)
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	d.run("DELETE FROM herald_consumer")
	fails.Store(3)
	c = d.trial(change).start()
	if err := c.wait(); !errors.Is(err, ErrHandler) {
		t.Fatal(err)
	}
	if position := d.ask("SELECT position FROM herald_consumer"); position != "" {
		t.Fatal(position)
	}
}

func TestConnectionBreaksInTheHandler(t *testing.T) {
	d := onHerald(t)
	var calls atomic.Int64
	c := d.trial(func(c *Config) {
		c.Attempts = 2
		c.Handle = func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
			calls.Add(1)
			_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return err
		}
	}).start()
	c.untilEvent(Listening, 1)
	d.order(1)
	err := c.wait()
	if !errors.Is(err, ErrHandler) || sqlstate(err) != "57P01" {
		t.Fatal(err)
	}
	if calls.Load() != 4 {
		t.Fatalf("%d attempts", calls.Load())
	}
}

// A handler that waits, with a context of its own.
func TestWorkTimeout(t *testing.T) {
	d := onHerald(t)
	var slow atomic.Int64
	slow.Store(1)
	c := d.trial(func(c *Config) {
		c.WorkTimeout = time.Second
		c.Handle = func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
			if slow.Add(-1) >= 0 {
				if _, err := tx.Exec(context.Background(), "SELECT pg_sleep(3600)"); err != nil {
					return err
				}
			}
			return bill(ctx, tx, batch)
		}
	}).start()
	c.untilEvent(Listening, 1)
	d.order(1)
	d.untilBilled()
	if f := c.of(Failing); len(f) != 1 || !errors.Is(f[0].Err, context.DeadlineExceeded) {
		t.Fatal(f)
	}
	d.untilTrue("SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3600)%' AND pid <> pg_backend_pid()")
	c.expectReasons(FirstStart)
}

// The server keeps the connections that have become silent, and with one of them the lock.
func TestSilence(t *testing.T) {
	d := onHerald(t)
	p := d.proxy()
	c := d.trial(func(c *Config) { c.Connection = p.connection() }).start()
	c.untilEvent(Listening, 1)
	d.order(1)
	d.untilBilled()
	began := time.Now()
	p.freeze()
	d.order(1)
	noticed := c.untilEvent(Disconnected, 1)
	if took := noticed.At.Sub(began); took > 4*beat {
		t.Errorf("noticed after %s", took)
	}
	d.untilBilled()
	c.expectReasons(FirstStart)
	if w := c.of(Waiting); len(w) != 1 {
		t.Fatal("the lock was free: the test tests nothing")
	}
}

func TestNothingIsSentForLong(t *testing.T) {
	for _, on := range []func(*testing.T) *testDatabase{onHerald, onStock} {
		d := on(t)
		c := d.trial(nil).start()
		c.untilEvent(Listening, 1)
		time.Sleep(6 * beat) // nothing happens: that is what is tested
		if e := c.of(Disconnected); len(e) != 0 {
			t.Fatal(e)
		}
	}
}

func TestStopFinishesTheBatch(t *testing.T) {
	d := onHerald(t)
	in, out := make(chan struct{}), make(chan struct{})
	c := d.trial(func(c *Config) {
		c.Handle = func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
			close(in)
			<-out
			return bill(ctx, tx, batch)
		}
	}).start()
	c.untilEvent(Listening, 1)
	before := d.ask("SELECT position FROM herald_consumer")
	d.order(2)
	<-in
	c.stop()
	d.order(3) // received, but not in work
	close(out)
	if err := c.wait(); err != nil {
		t.Fatal(err)
	}
	if n := d.ask("SELECT count(*) FROM bill"); n != "2" {
		t.Fatal(n)
	}
	if d.ask("SELECT position FROM herald_consumer") == before {
		t.Fatal("the position was not stored")
	}
	locks := d.ask(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if locks != "0" {
		t.Fatal("the lock was not given up")
	}
	c.config.Handle = bill
	next := d.trial(nil).start()
	d.untilBilled()
	next.expectReasons()
}

func TestOwnStore(t *testing.T) {
	d := onHerald(t)
	store := &memory{}
	var mu sync.Mutex
	seen := map[string]int{}
	var fail atomic.Int64
	c := d.trial(func(c *Config) {
		c.Store, c.Attempts, c.Batch = store, 2, 3
		c.State = func(_ context.Context, tx pgx.Tx, _ Reason) error {
			if tx != nil {
				return errors.New("there is a transaction")
			}
			return nil
		}
		c.Handle = func(_ context.Context, tx pgx.Tx, batch []Notification) error {
			mu.Lock()
			defer mu.Unlock()
			for _, n := range batch {
				if n.Payload == "5" || fail.Add(-1) >= 0 || tx != nil {
					return errors.New("no")
				}
			}
			for _, n := range batch {
				seen[n.Payload]++
			}
			return nil
		}
		c.Poison = func(_ context.Context, tx pgx.Tx, n Notification, _ error) (Decision, error) {
			mu.Lock()
			defer mu.Unlock()
			seen["poison "+n.Payload]++
			return Skip, nil
		}
	}).start()
	c.untilEvent(Listening, 1)
	if store.position == "" {
		t.Fatal("the first position was not saved")
	}
	all := func(count int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) >= count
		}
	}
	d.order(10)
	d.until("all are handled", all(10))
	d.terminate()
	fail.Store(1)
	d.order(5)
	d.until("all are handled", all(15))
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	d.order(1)
	c.start()
	d.until("it goes on where it was", all(16))
	c.expectReasons(FirstStart)
	mu.Lock()
	defer mu.Unlock()
	if seen["5"] != 0 || seen["poison 5"] == 0 {
		t.Fatal(seen)
	}
	if d.ask("SELECT to_regclass('herald_consumer')") != "" {
		t.Fatal("there is a table")
	}
}

func TestShared(t *testing.T) {
	d := onHerald(t)
	var both [2]*trial
	var counts [2]atomic.Int64
	for n := range both {
		both[n] = d.trial(func(c *Config) {
			c.Shared, c.Name, c.State = true, "", nil
			c.Handle = func(_ context.Context, _ pgx.Tx, batch []Notification) error {
				counts[n].Add(int64(len(batch)))
				return nil
			}
		}).start()
		both[n].untilEvent(Listening, 1)
	}
	if n := d.ask("SELECT count(*) " + sessions); n != "2" {
		t.Fatal(n)
	}
	d.order(5)
	for n := range both {
		d.until("all receive all", func() bool { return counts[n].Load() == 5 })
	}
	d.terminate()
	d.order(5)
	for n := range both {
		d.until("also after a break", func() bool { return counts[n].Load() == 10 })
		both[n].expectReasons(FirstStart)
	}
}

func TestStockServer(t *testing.T) {
	d := onStock(t)
	d.order(2)
	c := d.trial(nil).start()
	if l := c.untilEvent(Listening, 1); !l.Stock || l.Resumed {
		t.Fatalf("%+v", l)
	}
	d.untilBilled()
	d.order(50)
	d.untilBilled()
	for n := range 3 {
		d.terminate()
		d.order(5)
		c.untilEvent(Listening, n+2)
		d.untilBilled()
	}
	c.expectReasons(Stock, Stock, Stock, Stock)
	if position := d.ask("SELECT position FROM herald_consumer"); position != "" {
		t.Fatal(position)
	}
	d.run("UPDATE herald_consumer SET epoch = epoch + 1")
	d.order(1)
	c.untilEvent(Superseded, 1)
	d.untilBilled()
}

func TestStockServerFallsSilent(t *testing.T) {
	d := onStock(t)
	p := d.proxy()
	c := d.trial(func(c *Config) { c.Connection = p.connection() }).start()
	c.untilEvent(Listening, 1)
	p.freeze()
	began := time.Now()
	if noticed := c.untilEvent(Disconnected, 1).At.Sub(began); noticed > 4*beat {
		t.Errorf("noticed after %s", noticed)
	}
	c.untilEvent(Listening, 2)
	d.order(1)
	d.untilBilled()
}

// A cause that the caller can do something about is returned at the start, and is an event later.
func TestCausesAtTheStart(t *testing.T) {
	d, stock := onHerald(t), onStock(t)
	with := func(change func(*url.URL)) func(*Config) {
		return func(c *Config) {
			changed := *d.url
			change(&changed)
			c.Connection = changed.String()
		}
	}
	d.run("CREATE ROLE poor_" + d.url.Path[1:] + " LOGIN PASSWORD 'x'")
	defer d.run("DROP ROLE poor_" + d.url.Path[1:])
	for name, one := range map[string]struct {
		change func(*Config)
		want   error
	}{
		"nothing listens": {with(func(u *url.URL) { u.Host = "127.0.0.1:1" }), ErrUnreachable},
		"no such host":    {with(func(u *url.URL) { u.Host = "no.such.invalid:5432" }), ErrUnreachable},
		"password":        {with(func(u *url.URL) { u.User = url.UserPassword("postgres", "wrong") }), ErrAuthentication},
		"role":            {with(func(u *url.URL) { u.User = url.UserPassword("stranger", "x") }), ErrAuthentication},
		"database":        {with(func(u *url.URL) { u.Path = "/missing" }), ErrDatabaseMissing},
		"no table":        {func(c *Config) { c.Table = "missing" }, ErrStore},
		"no schema":       {func(c *Config) { c.Table = "missing.herald_consumer" }, ErrStore},
		"another table":   {func(c *Config) { c.Table = "orders" }, ErrStore},
		"no privilege": {with(func(u *url.URL) {
			u.User = url.UserPassword("poor_"+d.url.Path[1:], "x")
		}), ErrStore},
		"stock": {func(c *Config) {
			c.Connection, c.Require = stock.url.String(), true
		}, ErrStockServer},
		"listening connection": {func(c *Config) {
			c.WorkConnection = c.Connection
			c.Connection = "postgresql://127.0.0.1:1/x"
		}, ErrUnreachable},
		"its server": {func(c *Config) {
			c.WorkConnection = c.Connection
			c.Connection, c.Require = stock.url.String(), true
		}, ErrStockServer},
		"BeforeConnect": {func(c *Config) {
			c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return errors.New("no password") }
		}, ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			for _, on := range []*testDatabase{d, stock} {
				on.run("CREATE TABLE IF NOT EXISTS herald_consumer (name text PRIMARY KEY, position text, " +
					"epoch bigint NOT NULL DEFAULT 0, changed_at timestamptz NOT NULL DEFAULT now())")
			}
			config := Config{Connection: d.url.String(), Name: "billing", Channels: []string{"orders"}, Handle: bill,
				Logger: slog.New(slog.DiscardHandler)}
			one.change(&config)
			consumer, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			limited, cancel := context.WithTimeout(context.Background(), deadline)
			defer cancel()
			if err := consumer.Run(limited); !errors.Is(err, one.want) {
				t.Fatal(err)
			}
		})
	}
	t.Run("extension", func(t *testing.T) {
		c := d.trial(nil)
		d.run("DROP EXTENSION pg_herald")
		if err := c.start().wait(); !errors.Is(err, ErrExtensionMissing) {
			t.Fatal(err)
		}
		d.run("CREATE EXTENSION pg_herald")
		c.start().untilEvent(Listening, 1)
		d.run("ALTER TABLE herald_consumer RENAME TO hidden")
		d.terminate()
		if e := c.untilEvent(Disconnected, 2); !errors.Is(e.Err, ErrStore) {
			t.Fatal(e.Err)
		}
		d.run("ALTER TABLE hidden RENAME TO herald_consumer")
		d.order(1)
		d.untilBilled()
	})
}

func TestWrongCausesAreFoundWhileAnotherOneIsActive(t *testing.T) {
	d := onHerald(t)
	d.trial(nil).start().untilEvent(Listening, 1)
	c := d.trial(func(c *Config) {
		c.WorkConnection = c.Connection
		c.Connection = "postgresql://127.0.0.1:1/x"
	})
	if err := c.start().wait(); !errors.Is(err, ErrUnreachable) {
		t.Fatal(err)
	}
}

func TestSeveralHosts(t *testing.T) {
	d := onHerald(t)
	c := d.trial(func(c *Config) {
		changed := *d.url
		changed.Host = "127.0.0.1:1," + d.url.Host
		c.Connection = changed.String()
	}).start()
	c.untilEvent(Listening, 1)
	d.order(1)
	d.untilBilled()
}

func TestSlowHandler(t *testing.T) {
	d := onHerald(t)
	var largest atomic.Int64
	c := d.trial(func(c *Config) {
		c.Batch = 20
		c.Handle = func(ctx context.Context, tx pgx.Tx, batch []Notification) error {
			largest.Store(max(largest.Load(), int64(len(batch))))
			time.Sleep(20 * time.Millisecond)
			return bill(ctx, tx, batch)
		}
	}).start()
	c.untilEvent(Listening, 1)
	for range 500 {
		d.order(3)
	}
	d.untilBilled()
	if n := largest.Load(); n > 20 || n < 10 {
		t.Fatalf("batches of up to %d", n)
	}
	if e := c.of(Disconnected); len(e) != 0 {
		t.Fatal(e)
	}
}

func TestRunTwice(t *testing.T) {
	d := onHerald(t)
	c := d.trial(nil).start()
	c.untilEvent(Listening, 1)
	if err := c.consumer.Run(context.Background()); !errors.Is(err, ErrConfiguration) {
		t.Fatal(err)
	}
}

func TestPositionIsStoredAlsoWithoutNotifications(t *testing.T) {
	d := onHerald(t)
	c := d.trial(nil).start()
	c.untilEvent(Listening, 1)
	first := d.ask("SELECT position FROM herald_consumer")
	d.run("SELECT pg_notify('other', n::text) FROM generate_series(1, 10) n")
	time.Sleep(4 * beat) // positions come, and are not to be stored
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	if d.ask("SELECT position FROM herald_consumer") != first {
		t.Fatal("stored again within a minute")
	}
	c.start() // nothing was stored since its start
	d.untilTrue("SELECT position <> $1 FROM herald_consumer", first)
	c.expectReasons(FirstStart)
}
