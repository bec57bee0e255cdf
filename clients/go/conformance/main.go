// The program by which test/clients drives this package: its argument is a JSON object, its output a JSON object on each
// line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	herald "pg-herald.invalid/pg_herald/clients/go"
)

type arguments struct {
	Connection     string    `json:"connection"`
	WorkConnection string    `json:"work_connection"`
	Name           string    `json:"name"`
	Channels       []string  `json:"channels"`
	Mode           string    `json:"mode"`
	StoreFile      string    `json:"store_file"`
	Require        bool      `json:"require"`
	Heartbeat      float64   `json:"heartbeat"`
	Batch          int       `json:"batch"`
	Attempts       int       `json:"attempts"`
	Backoff        []float64 `json:"backoff"`
	WorkTimeout    float64   `json:"work_timeout"`
	Table          string    `json:"table"`
	Driver         string    `json:"driver"`
	Handler        struct {
		Delay          float64        `json:"delay"`
		FailAlways     string         `json:"fail_always"`
		FailTimes      map[string]int `json:"fail_times"`
		KillConnection string         `json:"kill_connection"`
		HideFailure    string         `json:"hide_failure"`
	} `json:"handler"`
	Poison string `json:"poison"`
}

// program has the functions of the consumer.
type program struct {
	arguments
	mu     sync.Mutex
	output *json.Encoder
}

type line = map[string]any

func (p *program) write(l line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.output.Encode(l); err != nil {
		os.Exit(2)
	}
}

func seconds(value float64) time.Duration {
	return time.Duration(value * float64(time.Second))
}

func (p *program) config() herald.Config {
	config := herald.Config{
		Connection: p.Connection, WorkConnection: p.WorkConnection, Name: p.Name, Channels: p.Channels,
		Handle: p.handle, State: p.state, Require: p.Require, Heartbeat: seconds(p.Heartbeat), Batch: p.Batch,
		Attempts: p.Attempts, WorkTimeout: seconds(p.WorkTimeout), Table: p.Table, OnEvent: p.event,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if len(p.Backoff) == 2 {
		config.Backoff = herald.Backoff{First: seconds(p.Backoff[0]), Max: seconds(p.Backoff[1])}
	}
	if p.Poison == "skip" || p.Poison == "stop" {
		config.Poison = p.poison
	}
	switch p.Mode {
	case "own":
		config.Store = file(p.StoreFile)
	case "shared":
		config.Shared, config.Name = true, ""
	}
	return config
}

func (p *program) handle(ctx context.Context, tx pgx.Tx, batch []herald.Notification) error {
	if p.Handler.Delay > 0 {
		select {
		case <-time.After(seconds(p.Handler.Delay)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, notification := range batch {
		if err := p.handleOne(ctx, tx, notification); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) handleOne(ctx context.Context, tx pgx.Tx, notification herald.Notification) error {
	payload := notification.Payload
	if payload == p.Handler.FailAlways && payload != "" {
		return fmt.Errorf("%q always fails", payload)
	}
	if p.Handler.FailTimes[payload] > 0 {
		p.Handler.FailTimes[payload]--
		return fmt.Errorf("%q fails", payload)
	}
	if tx == nil {
		p.write(line{"event": "notification", "channel": notification.Channel, "payload": payload})
		return nil
	}
	if payload == p.Handler.KillConnection && payload != "" {
		if _, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())"); err != nil {
			return err
		}
	}
	if payload == p.Handler.HideFailure && payload != "" {
		_, _ = tx.Exec(ctx, "SELECT 1 / 0")
		return nil
	}
	order, err := strconv.ParseInt(payload, 10, 64)
	if err != nil {
		return nil
	}
	_, err = tx.Exec(ctx, `INSERT INTO bill (order_id, by) VALUES ($1, 'handle')
		ON CONFLICT (order_id) DO UPDATE SET handled = bill.handled + 1`, order)
	return err
}

func (p *program) state(ctx context.Context, tx pgx.Tx, _ herald.Reason) error {
	if tx == nil {
		return nil
	}
	_, err := tx.Exec(ctx, "INSERT INTO bill SELECT id, 'state', 0 FROM orders ON CONFLICT DO NOTHING")
	return err
}

func (p *program) poison(ctx context.Context, tx pgx.Tx, notification herald.Notification, cause error) (herald.Decision, error) {
	if p.Poison == "stop" {
		return herald.Stop, nil
	}
	if tx == nil {
		return herald.Skip, nil
	}
	_, err := tx.Exec(ctx, "INSERT INTO dead_letter (payload, error) VALUES ($1, $2)", notification.Payload, cause.Error())
	return herald.Skip, err
}

func (p *program) event(event herald.Event) {
	l := line{"event": event.Name, "at": float64(event.At.UnixMicro()) / 1e6}
	switch event.Name {
	case herald.Active:
		l["epoch"] = event.Epoch
	case herald.ReadingState:
		l["reason"] = event.Reason
	case herald.Listening:
		l["server"], l["resumed"], l["stock"] = event.Server, event.Resumed, event.Stock
	case herald.Handled:
		l["count"], l["position"] = event.Count, event.Position
	case herald.Failing:
		l["error"], l["attempt"] = event.Err.Error(), event.Attempt
	case herald.Poisoned:
		l["channel"], l["payload"], l["error"] = event.Channel, event.Payload, event.Err.Error()
		l["decision"] = event.Decision.String()
	case herald.Disconnected:
		l["error"], l["pause"] = event.Err.Error(), event.Pause.Seconds()
	case herald.Stopped:
		if event.Err != nil {
			l["error"] = event.Err.Error()
		}
	}
	p.write(l)
}

// file is a store: the position is the file's content.
type file string

// Load reads the file, if it is there.
func (f file) Load(context.Context) (string, error) {
	content, err := os.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(content)), err
}

// Save writes a new file, and renames it.
func (f file) Save(_ context.Context, position string) error {
	made, err := os.CreateTemp(filepath.Dir(string(f)), "position")
	if err != nil {
		return err
	}
	defer os.Remove(made.Name())
	_, err = made.WriteString(position + "\n")
	if err = errors.Join(err, made.Close()); err != nil {
		return err
	}
	return os.Rename(made.Name(), string(f))
}

func typeOf(err error) string {
	for _, one := range []struct {
		kind error
		name string
	}{
		{herald.ErrConfiguration, "ConfigurationError"},
		{herald.ErrHandler, "HandlerError"},
		{herald.ErrAuthentication, "AuthenticationError"},
		{herald.ErrDatabaseMissing, "DatabaseMissingError"},
		{herald.ErrStore, "StoreError"},
		{herald.ErrExtensionMissing, "ExtensionMissingError"},
		{herald.ErrStockServer, "StockServerError"},
		{herald.ErrUnreachable, "UnreachableError"},
	} {
		if errors.Is(err, one.kind) {
			return one.name
		}
	}
	return "HeraldError"
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	p := &program{output: json.NewEncoder(os.Stdout)}
	p.output.SetEscapeHTML(false)
	var err error
	if len(os.Args) != 2 {
		err = errors.New("needs one argument, a JSON object")
	} else {
		err = json.Unmarshal([]byte(os.Args[1]), &p.arguments)
	}
	if err == nil {
		var consumer *herald.Consumer
		if consumer, err = herald.New(p.config()); err == nil {
			err = consumer.Run(ctx)
		}
	}
	if err != nil {
		p.write(line{"event": "failed", "type": typeOf(err), "message": err.Error()})
		os.Exit(1)
	}
}
