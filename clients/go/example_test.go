package herald_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"

	herald "pg-herald.invalid/pg_herald/clients/go"
)

// One bill for each order, also when connections break, the process is killed, or a second one runs.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	consumer, err := herald.New(herald.Config{
		Connection: "postgresql://primary,standby/shop",
		Name:       "billing",
		Channels:   []string{"orders"},
		Handle: func(ctx context.Context, tx pgx.Tx, batch []herald.Notification) error {
			for _, notification := range batch {
				if _, err := tx.Exec(ctx, "INSERT INTO bill VALUES ($1::text::bigint) ON CONFLICT DO NOTHING", notification.Payload); err != nil {
					return err
				}
			}
			return nil
		},
		State: func(ctx context.Context, tx pgx.Tx, reason herald.Reason) error {
			slog.Warn("notifications may be missing", "reason", reason)
			_, err := tx.Exec(ctx, "INSERT INTO bill SELECT id FROM orders ON CONFLICT DO NOTHING")
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.CreateStore(ctx); err != nil {
		log.Fatal(err)
	}
	if err := consumer.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A notification that cannot be handled is put into a table, and the others are handled.
func ExamplePoisonHandler() {
	var deadLetter herald.PoisonHandler = func(ctx context.Context, tx pgx.Tx, notification herald.Notification,
		cause error) (herald.Decision, error) {
		_, err := tx.Exec(ctx, "INSERT INTO dead_letter (channel, payload, error) VALUES ($1, $2, $3)",
			notification.Channel, notification.Payload, cause.Error())
		return herald.Skip, err
	}
	_ = herald.Config{Poison: deadLetter}
}

// Each process drops from its cache what has changed; after each gap, everything.
func ExampleConfig_shared() {
	var cache interface {
		Drop(key string)
		DropAll()
	}
	_ = herald.Config{
		Shared:   true,
		Channels: []string{"product_changed"},
		Handle: func(_ context.Context, _ pgx.Tx, batch []herald.Notification) error {
			for _, notification := range batch {
				cache.Drop(notification.Payload)
			}
			return nil
		},
		State: func(context.Context, pgx.Tx, herald.Reason) error {
			cache.DropAll()
			return nil
		},
	}
}

// The listening connection prefers a standby; the work is done on the primary. The password is asked for each time.
func ExampleConfig_connections() {
	_ = herald.Config{
		Connection:     "postgresql://one,two,three/shop?target_session_attrs=prefer-standby",
		WorkConnection: "postgresql://one,two,three/shop",
		BeforeConnect: func(ctx context.Context, config *pgx.ConnConfig) error {
			password, err := os.ReadFile("/run/secrets/database")
			config.Password = string(password)
			return err
		},
	}
}

// What to do about a consumer that has ended.
func ExampleConsumer_Run() {
	var consumer *herald.Consumer
	err := consumer.Run(context.Background())
	var failed *herald.HandlerError
	switch {
	case errors.As(err, &failed):
		log.Fatalf("the handler fails for %v: %v", failed.Notification, failed.Err)
	case errors.Is(err, herald.ErrUnreachable):
		log.Fatal("the database is not there yet: ", err)
	case err != nil:
		log.Fatal(err)
	}
}
