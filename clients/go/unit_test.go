package herald

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func someHandler(context.Context, pgx.Tx, []Notification) error { return nil }

func valid() Config {
	return Config{Connection: "postgresql://localhost/shop", Name: "billing", Channels: []string{"orders"}, Handle: someHandler}
}

func TestWrongConfigurationIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no handler":           func(c *Config) { c.Handle = nil },
		"no name":              func(c *Config) { c.Name = "" },
		"name too long":        func(c *Config) { c.Name = strings.Repeat("ä", 32) },
		"name of pg_herald":    func(c *Config) { c.Name = "herald_x" },
		"no channels":          func(c *Config) { c.Channels = nil },
		"empty channel":        func(c *Config) { c.Channels = []string{"orders", ""} },
		"channel too long":     func(c *Config) { c.Channels = []string{strings.Repeat("c", 64)} },
		"channel of pg_herald": func(c *Config) { c.Channels = []string{"herald_position"} },
		"channel with a NUL":   func(c *Config) { c.Channels = []string{"a\x00b"} },
		"channel not in UTF-8": func(c *Config) { c.Channels = []string{"a\xff"} },
		"shared with a name":   func(c *Config) { c.Shared = true },
		"shared with a store":  func(c *Config) { c.Shared, c.Name, c.Store = true, "", &memory{} },
		"heartbeat too short":  func(c *Config) { c.Heartbeat = time.Millisecond },
		"negative timeout":     func(c *Config) { c.WorkTimeout = -time.Second },
		"negative batch":       func(c *Config) { c.Batch = -1 },
		"negative attempts":    func(c *Config) { c.Attempts = -1 },
		"negative pause":       func(c *Config) { c.Backoff.Max = -1 },
		"table without a name": func(c *Config) { c.Table = "schema." },
		"connection":           func(c *Config) { c.Connection = "postgresql://localhost:port/shop" },
		"connection for work":  func(c *Config) { c.WorkConnection = "host=localhost sslmode=perhaps" },
	} {
		t.Run(name, func(t *testing.T) {
			config := valid()
			change(&config)
			if consumer, err := New(config); !errors.Is(err, ErrConfiguration) || consumer != nil {
				t.Fatalf("%v, %v", consumer, err)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	config := valid()
	config.Channels = []string{"b", "a", "b", strings.Repeat("c", 63)}
	consumer, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	c := consumer.config
	if c.Heartbeat != 5*time.Second || c.Batch != 1000 || c.Attempts != 5 || c.WorkTimeout != time.Minute ||
		c.Backoff != (Backoff{100 * time.Millisecond, 10 * time.Second}) || c.Table != "herald_consumer" || len(c.Channels) != 3 {
		t.Fatalf("%+v", c)
	}
	if consumer.listeningConfig.ConnectTimeout != 5*time.Second {
		t.Fatal(consumer.listeningConfig.ConnectTimeout)
	}
}

func TestLongHeartbeatDoesNotSlowConnectingAndTakingOver(t *testing.T) {
	config := valid()
	config.Heartbeat = time.Hour
	consumer, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	if pause := consumer.workConfig.ConnectTimeout; pause != 10*time.Second {
		t.Error(pause)
	}
	if first, last := lockPauses.limit(0), lockPauses.limit(100); first != 50*time.Millisecond || last != time.Second {
		t.Error(first, last)
	}
}

func TestNameOfTheTableIsQuoted(t *testing.T) {
	config := valid()
	config.Table = `app.my "table"`
	if name := newTable(config).name; name != `"app"."my ""table"""` {
		t.Fatal(name)
	}
}

func TestPasswordIsInNoError(t *testing.T) {
	config := valid()
	config.Connection = "postgresql://user:secret@localhost:port/shop"
	if _, err := New(config); err == nil || strings.Contains(err.Error(), "secret") {
		t.Fatal(err)
	}
}

func TestPauses(t *testing.T) {
	b := Backoff{100 * time.Millisecond, 10 * time.Second}
	for n, limit := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		if b.limit(n) != limit*time.Millisecond {
			t.Fatalf("%d: %s", n, b.limit(n))
		}
	}
	if b.limit(1000000) != b.Max || (Backoff{time.Second, time.Millisecond}).limit(3) != time.Millisecond {
		t.Fatal("not limited")
	}
	shortest, longest := time.Hour, time.Duration(0)
	for range 1000 {
		pause := b.pause(2)
		shortest, longest = min(shortest, pause), max(longest, pause)
	}
	if shortest > 100*time.Millisecond || longest < 300*time.Millisecond || longest > 400*time.Millisecond {
		t.Fatalf("%s to %s", shortest, longest)
	}
}

func notifications(from, to int) (all []Notification) {
	for n := from; n <= to; n++ {
		all = append(all, Notification{Channel: "c", Payload: fmt.Sprint(n)})
	}
	return all
}

func putAll(i *inbox, from, to int) {
	for _, notification := range notifications(from, to) {
		i.put(notification)
	}
}

func expect(t *testing.T, i *inbox, from, to int, position string, complete bool) {
	t.Helper()
	got, ok, err := i.take()
	want := chunk{notifications(from, to), position, complete}
	if !ok || err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v %v %v, not %v", got, ok, err, want)
	}
}

func expectNothing(t *testing.T, i *inbox) {
	t.Helper()
	if got, ok, err := i.take(); ok || err != nil {
		t.Fatalf("%v %v", got, err)
	}
}

func TestBatchEndsAtTheNewestPosition(t *testing.T) {
	i := newInbox(10, false)
	putAll(i, 1, 3)
	expectNothing(t, i)
	i.stand("A")
	putAll(i, 4, 5)
	i.stand("B")
	putAll(i, 6, 7)
	expect(t, i, 1, 5, "B", true)
	expectNothing(t, i)
	i.stand("C")
	i.stand("D")
	expect(t, i, 6, 7, "D", true)
	i.stand("E")
	expect(t, i, 1, 0, "E", true)
	expectNothing(t, i)
}

func TestLargeTransactionComesInParts(t *testing.T) {
	i := newInbox(3, false)
	putAll(i, 1, 3)
	expect(t, i, 1, 3, "", false)
	putAll(i, 4, 6)
	expect(t, i, 4, 6, "", false)
	i.stand("A")
	expect(t, i, 1, 0, "A", true)
}

func TestStockIsCutAnywhere(t *testing.T) {
	i := newInbox(3, true)
	expectNothing(t, i)
	putAll(i, 1, 2)
	expect(t, i, 1, 2, "", true)
}

func TestReceiverWaitsForRoom(t *testing.T) {
	i := newInbox(3, false)
	done := make(chan struct{})
	go func() {
		putAll(i, 1, 7)
		i.stand("A")
		close(done)
	}()
	for _, part := range [][2]int{{1, 3}, {4, 6}} {
		for {
			<-i.ready
			i.mu.Lock()
			n := len(i.notifications)
			i.mu.Unlock()
			if n > 3 {
				t.Fatal(n)
			}
			if n == 3 {
				break
			}
		}
		expect(t, i, part[0], part[1], "", false)
	}
	<-done
	expect(t, i, 7, 7, "A", true)
}

func TestEndReleasesTheReceiver(t *testing.T) {
	i := newInbox(1, false)
	done := make(chan struct{})
	go func() {
		putAll(i, 1, 5)
		close(done)
	}()
	<-i.ready
	i.end(errStopped)
	i.end(errSuperseded)
	<-done
	if _, _, err := i.take(); err != errStopped {
		t.Fatal(err)
	}
}

func TestFirstPosition(t *testing.T) {
	i := newInbox(2, false)
	if _, ok, _ := i.firstPosition(); ok {
		t.Fatal("there is none yet")
	}
	i.stand("A")
	putAll(i, 1, 1)
	i.stand("B")
	if position, ok, err := i.firstPosition(); position != "A" || !ok || err != nil {
		t.Fatal(position, ok, err)
	}
	after := newInbox(2, false)
	putAll(after, 1, 1)
	<-after.ready
	for range 2 { // also with the position, which stands for what is not handled yet
		if position, ok, err := after.firstPosition(); position != "" || !ok || err != nil {
			t.Fatal(position, ok, err)
		}
		after.stand("A")
	}
	if !after.stands() {
		t.Fatal("there is one")
	}
	expect(t, after, 1, 1, "A", true)
	i.end(errStopped)
	if _, _, err := i.firstPosition(); err != errStopped {
		t.Fatal(err)
	}
}

func TestBeats(t *testing.T) {
	i := newInbox(2, false)
	i.stand("A")
	if i.beaten() {
		t.Fatal("the first position is no heartbeat")
	}
	i.stand("B")
	if !i.beaten() || i.beaten() {
		t.Fatal("the second one is, once")
	}
	i.live()
	if !i.beaten() {
		t.Fatal("an answer is one")
	}
}

func TestCauses(t *testing.T) {
	failed := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	broken := &net.OpError{Op: "read", Err: errors.New("connection reset")}
	for _, one := range []struct {
		got, want error
	}{
		{connectError(failed("28P01")), ErrAuthentication},
		{connectError(failed("28000")), ErrAuthentication},
		{connectError(failed("42501")), ErrAuthentication},
		{connectError(failed("3D000")), ErrDatabaseMissing},
		{connectError(failed("57P03")), ErrUnreachable},
		{connectError(failed("53300")), ErrUnreachable},
		{connectError(broken), ErrUnreachable},
		{connectError(errors.Join(broken, failed("28P01"))), ErrAuthentication},
		{listenError(failed("25006")), errStandby},
		{listenError(failed("22023")), ErrStore},
		{listenError(failed("57P01")), ErrUnreachable},
		{storeError(failed("42P01"), false), ErrStore},
		{storeError(failed("57P01"), true), ErrUnreachable},
		{storeError(broken, true), ErrUnreachable},
		{lost(errSuperseded), errSuperseded},
		{&HandlerError{Err: broken}, ErrHandler},
		{&HandlerError{Err: broken}, broken},
	} {
		if !errors.Is(one.got, one.want) {
			t.Errorf("%v is not %v", one.got, one.want)
		}
	}
	if err := lost(failed("40001")); errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	if lost(nil) != nil || storeError(nil, false) != nil {
		t.Error("no error is none")
	}
}

func TestErrorsThatPass(t *testing.T) {
	for code, want := range map[string]bool{
		"08006": true, "40P01": true, "53100": true, "57P01": true, "57014": false, "58030": true, "25006": true, "55P03": true,
		"23505": false, "25P02": false, "22012": false, "42P01": false, "55006": false,
	} {
		if passes(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})) != want {
			t.Error(code)
		}
	}
	if passes(errors.New("the handler's own")) {
		t.Error("what the server has not made")
	}
}

func TestNotificationsBeforeListening(t *testing.T) {
	l := &listener{listening: make(chan struct{})}
	for _, channel := range []string{"orders", positionChannel} {
		l.notified(nil, &pgconn.Notification{Channel: channel}) // there is no inbox yet
	}
	select {
	case <-l.listening:
		t.Fatal("it listens")
	default:
	}
	l.asked, l.inbox = true, newInbox(1, false)
	l.notified(nil, &pgconn.Notification{Channel: positionChannel, Payload: "A"})
	<-l.listening
	expect(t, l.inbox, 1, 0, "A", true)
}

func TestSeveredWireEndsForTheOtherSide(t *testing.T) {
	for _, secured := range []bool{false, true} {
		near, far := net.Pipe()
		w := &wire{Conn: near}
		if secured {
			w.Conn = tls.Client(near, &tls.Config{ServerName: "server"})
		}
		w.sever()
		_ = far.SetReadDeadline(time.Now().Add(deadline))
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		if !w.isLeft() {
			t.Error("not left")
		}
	}
}

func TestWireLimitsSilenceAndIsLeft(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	w := &wire{Conn: near}
	w.limit(20 * time.Millisecond)
	if _, err := w.Read(make([]byte, 1)); !isTimeout(err) {
		t.Fatal(err)
	}
	w.limit(time.Hour)
	ended := make(chan error)
	go func() {
		_, err := w.Read(make([]byte, 1))
		ended <- err
	}()
	w.leave()
	if err := <-ended; !isTimeout(err) {
		t.Fatal(err)
	}
	if err := w.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); !isTimeout(err) {
		t.Fatal("what is left can be written to", err)
	}
}
