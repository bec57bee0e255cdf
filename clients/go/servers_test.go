package herald

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	deadline = 2 * time.Minute
	poll     = 20 * time.Millisecond
	beat     = 500 * time.Millisecond
)

const tables = `
	CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL);
	CREATE FUNCTION orders_notify() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_notify('orders', NEW.id::text); RETURN NULL; END $$;
	CREATE TRIGGER orders_notify AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION orders_notify();
	CREATE TABLE bill (order_id bigint PRIMARY KEY, by text NOT NULL, handled int NOT NULL DEFAULT 1,
		xact xid8 NOT NULL DEFAULT pg_current_xact_id());
	CREATE TABLE dead_letter (payload text, error text);`

// database is one of a test's own.
type testDatabase struct {
	*testing.T
	url   *url.URL
	admin *pgx.Conn
}

func onHerald(t *testing.T) *testDatabase { return newDatabase(t, "HERALD_TEST_SERVER") }
func onStock(t *testing.T) *testDatabase  { return newDatabase(t, "HERALD_TEST_STOCK") }

func newDatabase(t *testing.T, variable string) *testDatabase {
	text := os.Getenv(variable)
	if text == "" {
		t.Skipf("%s is not set: run_tests starts servers, and sets it", variable)
	}
	where, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	d := &testDatabase{T: t, url: where}
	name := fmt.Sprintf("test_%d", rand.Uint64())
	server := d.connect()
	d.exec(server, "CREATE DATABASE "+name)
	d.url = where.JoinPath("..", name)
	d.admin = d.connect()
	t.Cleanup(func() {
		_ = d.admin.Close(context.Background())
		d.exec(server, "DROP DATABASE "+name+" WITH (FORCE)")
		_ = server.Close(context.Background())
	})
	d.run(tables)
	return d
}

func (d *testDatabase) connect() *pgx.Conn {
	d.Helper()
	config, err := pgx.ParseConfig(d.url.String())
	if err != nil {
		d.Fatal(err)
	}
	config.RuntimeParams["application_name"] = "admin"
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	connection, err := pgx.ConnectConfig(context.Background(), config)
	if err != nil {
		d.Fatal(err)
	}
	return connection
}

func (d *testDatabase) exec(connection *pgx.Conn, sql string, arguments ...any) {
	d.Helper()
	if _, err := connection.Exec(context.Background(), sql, arguments...); err != nil {
		d.Fatalf("%s: %v", sql, err)
	}
}

// run runs a statement.
func (d *testDatabase) run(sql string, arguments ...any) {
	d.Helper()
	d.exec(d.admin, sql, arguments...)
}

// ask returns the text of the one value that a query returns.
func (d *testDatabase) ask(sql string, arguments ...any) string {
	d.Helper()
	var value *string
	if err := d.admin.QueryRow(context.Background(), "SELECT ("+sql+")::text", arguments...).Scan(&value); err != nil {
		d.Fatalf("%s: %v", sql, err)
	}
	if value == nil {
		return ""
	}
	return *value
}

func (d *testDatabase) until(what string, condition func() bool) {
	d.Helper()
	for end := time.Now().Add(deadline); !condition(); time.Sleep(poll) {
		if time.Now().After(end) {
			d.Fatalf("not within %s: %s", deadline, what)
		}
	}
}

// untilTrue waits until a query returns true.
func (d *testDatabase) untilTrue(sql string, arguments ...any) {
	d.Helper()
	d.until(sql, func() bool { return d.ask(sql, arguments...) == "true" })
}

// order inserts orders, in one transaction.
func (d *testDatabase) order(count int) {
	d.Helper()
	d.run("INSERT INTO orders (item) SELECT 'pen' FROM generate_series(1, $1)", count)
}

// untilBilled waits until every order has a bill, and fails if one was handled twice.
func (d *testDatabase) untilBilled() {
	d.Helper()
	d.untilTrue("SELECT NOT EXISTS (SELECT id FROM orders EXCEPT SELECT order_id FROM bill)")
	if doubled := d.ask("SELECT count(*) FROM bill WHERE handled > 1"); doubled != "0" {
		d.Fatalf("%s orders were handled more than once", doubled)
	}
}

// sessions selects those of consumers.
const sessions = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg_herald %'"

func (d *testDatabase) terminate() { d.run("SELECT pg_terminate_backend(pid) " + sessions) }

// trial is a consumer, and what has happened to it.
type trial struct {
	*testDatabase
	config   Config
	consumer *Consumer
	stop     context.CancelFunc
	ended    chan error

	mu     sync.Mutex
	events []Event
}

// bill is the handler of most tests.
func bill(ctx context.Context, tx pgx.Tx, batch []Notification) error {
	for _, notification := range batch {
		order, err := strconv.ParseInt(notification.Payload, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no order", notification.Payload)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO bill (order_id, by) VALUES ($1, 'handle')
			ON CONFLICT (order_id) DO UPDATE SET handled = bill.handled + 1`, order); err != nil {
			return err
		}
	}
	return nil
}

func billAll(ctx context.Context, tx pgx.Tx, _ Reason) error {
	_, err := tx.Exec(ctx, "INSERT INTO bill SELECT id, 'state', 0 FROM orders ON CONFLICT DO NOTHING")
	return err
}

func (d *testDatabase) trial(change func(*Config)) *trial {
	d.Helper()
	t := &trial{testDatabase: d, config: Config{
		Connection: d.url.String(), Name: "billing", Channels: []string{"orders"}, Handle: bill, State: billAll,
		Heartbeat: beat, Backoff: Backoff{time.Millisecond, 200 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	}}
	t.config.OnEvent = func(event Event) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.events = append(t.events, event)
	}
	if change != nil {
		change(&t.config)
	}
	var err error
	if t.consumer, err = New(t.config); err != nil {
		d.Fatal(err)
	}
	if !t.config.Shared && t.config.Store == nil {
		if err := t.consumer.CreateStore(context.Background()); err != nil {
			d.Fatal(err)
		}
	}
	d.Cleanup(func() {
		if t.stop != nil {
			t.end()
		}
		if d.Failed() {
			for _, event := range t.events {
				d.Logf("%s %+v", event.At.Format("05.000"), event)
			}
		}
	})
	return t
}

// start runs the consumer.
func (t *trial) start() *trial {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	t.stop, t.ended = stop, ended
	go func() { ended <- t.consumer.Run(ctx) }()
	return t
}

// end stops the consumer, and returns what Run does.
func (t *trial) end() error {
	t.stop()
	return t.wait()
}

// wait waits until Run returns.
func (t *trial) wait() error {
	t.Helper()
	defer func() { t.stop = nil }()
	select {
	case err := <-t.ended:
		return err
	case <-time.After(deadline):
		t.Fatal("Run does not return")
		return nil
	}
}

// of returns the events of a name.
func (t *trial) of(name EventName) (found []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, event := range t.events {
		if event.Name == name {
			found = append(found, event)
		}
	}
	return found
}

// names returns those of all events.
func (t *trial) names() (names []EventName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, event := range t.events {
		names = append(names, event.Name)
	}
	return names
}

// untilEvent waits for the nth event of a name, counted from 1.
func (t *trial) untilEvent(name EventName, n int) Event {
	t.Helper()
	t.until(fmt.Sprintf("%s, %d times", name, n), func() bool { return len(t.of(name)) >= n })
	return t.of(name)[n-1]
}

// reasons returns why state was called.
func (t *trial) expectReasons(want ...Reason) {
	t.Helper()
	var got []Reason
	for _, event := range t.of(ReadingState) {
		got = append(got, event.Reason)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("state was called for %q, not for %q", got, want)
	}
}

// memory is a store.
type memory struct {
	mu       sync.Mutex
	position string
	saves    int
}

func (m *memory) Load(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.position, nil
}

func (m *memory) Save(_ context.Context, position string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.position = position
	m.saves++
	return nil
}

// proxy stands between a consumer and the server, and breaks connections.
type proxy struct {
	*testDatabase
	door     net.Listener
	released chan struct{} // closed at the end of the test

	mu    sync.Mutex
	pairs []*pair
}

type pair struct {
	client, server net.Conn
	frozen         bool
}

func (d *testDatabase) proxy() *proxy {
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.Fatal(err)
	}
	p := &proxy{testDatabase: d, door: door, released: make(chan struct{})}
	d.Cleanup(func() {
		door.Close()
		close(p.released)
		p.reset()
	})
	go p.accept()
	return p
}

// connection is the connection string that leads through the proxy.
func (p *proxy) connection() string {
	through := *p.testDatabase.url
	through.Host = p.door.Addr().String()
	return through.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.door.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.testDatabase.url.Host)
		if err != nil {
			client.Close()
			continue
		}
		made := &pair{client: client, server: server}
		p.mu.Lock()
		p.pairs = append(p.pairs, made)
		p.mu.Unlock()
		go p.pass(made, client, server)
		go p.pass(made, server, client)
	}
}

func (p *proxy) pass(through *pair, from, to net.Conn) {
	buffer := make([]byte, 65536)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		frozen := through.frozen
		p.mu.Unlock()
		if frozen {
			<-p.released // the end of one side is not passed on either
		}
		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// reset breaks all connections, on both sides.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, broken := range p.pairs {
		for _, side := range []net.Conn{broken.client, broken.server} {
			_ = side.(*net.TCPConn).SetLinger(0)
			side.Close()
		}
	}
	p.pairs = nil
}

// freeze makes the connections that there are silent: both sides remain open. New ones work.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, silent := range p.pairs {
		silent.frozen = true
	}
}
